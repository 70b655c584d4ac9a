"""Hit ratio against capacity and time to live, and how long blocks are of use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, Kind, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import PALETTE, Columns, ceiling, show, time_axis
from kvtrace.report.questions.facts import Facts, facts
from kvtrace.report.questions.part import Part, absent_part, chart_of, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

_SMALL_HEIGHT: Final = 300


def capacity(record: AuditRecord, texts: Texts, drawn: Mapping[str, ChartView]) -> Part:
    """What a cache of each size and age would hit."""
    curve = drawn["curve"]
    if curve.figure is None:
        return absent_part("capacity", texts, missing=curve.missing)
    marks = facts(record, "reuse/capacity_marks")
    small = (
        _ttl(record, texts),
        _gaps(record, texts),
        _lifespans(record, texts),
        _working_set(record, texts),
    )
    sentences = [
        texts(
            f"q.capacity.mark.{row.text('label')}",
            size=row.show("capacity_bytes", texts),
            ratio=row.show("hit_ratio_tokens", texts),
        )
        for row in marks
        if texts.has(f"q.capacity.mark.{row.text('label')}")
    ]
    shown_small = tuple(view for view in small if view is not None)
    hot = facts(record, "reuse/hot_blocks").where(top_share=0.01).first()
    if hot is not None:
        shown = {name: hot.show(name, texts) for name in hot.table.columns}
        sentences.append(texts("q.capacity.hot", **shown))
    if not shown_small:
        sentences.append(texts("q.capacity.no_clock"))
    ids = ("reuse/capacity_marks", "reuse/hot_blocks")
    return Part(
        "capacity",
        texts("q.capacity.title"),
        sentences=tuple(sentences),
        charts=(curve,),
        small=shown_small,
        folded=tables(record, ids, "computed"),
    )


def _ttl(record: AuditRecord, texts: Texts) -> ChartView | None:
    rows = facts(record, "reuse/ttl_curve").known("ttl_s", "hit_ratio_tokens")
    first, last = rows.first(), rows.largest("ttl_s")
    if rows.table is None or first is None or last is None:
        return None
    x = [row.number("ttl_s") or 0.0 for row in rows]
    y = [row.number("hit_ratio_tokens") for row in rows]
    hover = [
        f"{show(a, 's', texts)}<br>{show(b, 'ratio', texts)}" for a, b in zip(x, y, strict=True)
    ]
    minute = rows.where(ttl_s=60.0).first() or first
    return chart_of(
        "ttl",
        texts,
        charts.lines(
            [Series(texts("axis.hit_ratio"), x, y, PALETTE[2], 0, hover)],
            x=Axis(texts("axis.ttl"), "seconds", log=True),
            y=Axis(texts("axis.hit_ratio"), "ratio", bounds=(0.0, ceiling(y))),
            height=_SMALL_HEIGHT,
        ),
        table_view(rows.table, origin="computed"),
        summary=texts(
            "chart.ttl.summary",
            ttl=minute.show("ttl_s", texts),
            ratio=minute.show("hit_ratio_tokens", texts),
            last=last.show("ttl_s", texts),
            last_ratio=last.show("hit_ratio_tokens", texts),
        ),
    )


def _bars(
    id: str, rows: Facts, bucket: str, value: str, texts: Texts, *, kind: Kind = "ratio"
) -> str:
    x: list[float | str] = [bucket_s(row.number(bucket)) for row in rows]
    y = [row.number(value) for row in rows]
    hover = [f"≥ {name} s<br>{row.show(value, texts)}" for name, row in zip(x, rows, strict=True)]
    name = texts(f"axis.{id}")
    return charts.columns(
        [Series(name, x, y, PALETTE[0], 0, hover)],
        x=Axis(texts(f"axis.{id}_bucket"), "category"),
        y=Axis(name, kind),
        height=_SMALL_HEIGHT,
    )


def bucket_s(value: float | None) -> str:
    """A bound of whole seconds as a label of an axis in seconds."""
    return "?" if value is None else f"{value:,.0f}"


def _gaps(record: AuditRecord, texts: Texts) -> ChartView | None:
    rows = facts(record, "reuse/gaps").known("gap_bucket_s", "reused_tokens_share")
    top = rows.largest("reused_tokens_share")
    if rows.table is None or top is None:
        return None
    return chart_of(
        "gaps",
        texts,
        _bars("gaps", rows, "gap_bucket_s", "reused_tokens_share", texts),
        table_view(rows.table, origin="computed"),
        summary=texts(
            "chart.gaps.summary",
            bucket=bucket_s(top.number("gap_bucket_s")),
            share=top.show("reused_tokens_share", texts),
        ),
    )


def _lifespans(record: AuditRecord, texts: Texts) -> ChartView | None:
    rows = facts(record, "reuse/lifespans").known("lifespan_bucket_s", "distinct_blocks_share")
    first = rows.first()
    if rows.table is None or first is None:
        return None
    return chart_of(
        "lifespans",
        texts,
        _bars("lifespans", rows, "lifespan_bucket_s", "distinct_blocks_share", texts),
        table_view(rows.table, origin="computed"),
        summary=texts(
            "chart.lifespans.summary",
            once=first.show("used_once_blocks", texts),
            share=first.show("distinct_blocks_share", texts),
        ),
    )


def _working_set(record: AuditRecord, texts: Texts) -> ChartView | None:
    rows = facts(record, "reuse/working_set")
    table = rows.table
    if table is None or not rows:
        return None
    unit = "bytes" if rows.known("touched_bytes") else "blocks"
    columns = Columns(table)
    x, axis = time_axis(columns, table.columns.index("window_start_ns"), texts)
    series = []
    for style, key in enumerate(("touched", "alive")):
        column = f"{key}_{unit}"
        name = texts(f"chart.working_set.{key}")
        hover = [f"{plot_text(name)}: {row.show(column, texts)}" for row in rows]
        values = [row.number(column) for row in rows]
        series.append(Series(name, x, values, PALETTE[style], style, hover))
    top = rows.largest(f"alive_{unit}")
    most = rows.largest(f"touched_{unit}")
    if top is None or most is None:
        return None
    kind: Kind = "bytes" if unit == "bytes" else "count"
    return chart_of(
        "working_set",
        texts,
        charts.lines(
            series,
            x=axis,
            y=Axis(texts(f"axis.working_set_{unit}"), kind),
            height=_SMALL_HEIGHT,
        ),
        table_view(table, origin="computed"),
        summary=texts(
            "chart.working_set.summary",
            window=most.show("window_ns", texts),
            touched=most.show(f"touched_{unit}", texts),
            alive=top.show(f"alive_{unit}", texts),
        ),
    )
