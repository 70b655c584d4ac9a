"""What the trace itself holds: capacity curve, reuse and KV bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.charts import Axis, Mark, Panel, Series, plot_text
from kvtrace.report.figures.common import (
    PALETTE,
    Columns,
    absent,
    largest,
    pick_table,
    show,
)
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, made_table, table_view

CURVE_TABLES: Final = ("reuse/capacity_curve",)
REUSE_TABLES: Final = ("reuse/by_prompt_bucket",)
TIER_SIZES: Final = (
    "hbm_cache_bytes",
    "dram_idle_bytes_per_instance",
    "pool_dram_bytes",
    "capacity_bytes",
)
"""How ids of assumptions end that are the size of a tier."""
KV_TABLES: Final = ("kv/bytes_distribution",)


def capacity_curve(record: AuditRecord, texts: Texts) -> ChartView:
    """Hit ratio of an LRU cache by its capacity, with the tier sizes that are known."""
    curve = record.reuse.hit_curve
    if not curve:
        reason = record.reuse.unknown_reason
        return absent(
            "curve",
            texts,
            "computed",
            reason=texts("chart.curve.missing_because", reason=reason) if reason else None,
        )
    in_bytes = all(point.capacity_bytes for point in curve)
    x: list[float] = [
        point.capacity_bytes if in_bytes and point.capacity_bytes else point.capacity_blocks
        for point in curve
    ]
    unit = "bytes" if in_bytes else "blocks"
    series = []
    for style, (key, values) in enumerate(
        (
            ("tokens", [point.hit_ratio_tokens for point in curve]),
            ("blocks", [point.hit_ratio_blocks for point in curve]),
        )
    ):
        name = texts(f"chart.curve.{key}")
        hover = [
            f"{plot_text(name)}: {show(v, 'ratio', texts)}<br>{show(c, unit, texts)}"
            for c, v in zip(x, values, strict=True)
        ]
        series.append(Series(name, x, values, PALETTE[style], style, hover))
    figure = charts.lines(
        series,
        x=Axis(texts("axis.capacity"), "bytes" if in_bytes else "count", log=True),
        y=Axis(texts("axis.hit_ratio"), "ratio", bounds=(0.0, _ceiling(series))),
        marks=_tier_marks(record, x) if in_bytes else (),
    )
    first, last = curve[0], curve[-1]
    table = made_table(
        "hit_curve",
        texts("chart.curve.title"),
        (
            ("capacity_blocks", "blocks", texts("column.capacity_blocks")),
            ("capacity_bytes", "bytes", texts("column.capacity_bytes")),
            ("hit_ratio_tokens", "ratio", texts("column.hit_ratio_tokens")),
            ("hit_ratio_blocks", "ratio", texts("column.hit_ratio_blocks")),
        ),
        [
            [p.capacity_blocks, p.capacity_bytes, p.hit_ratio_tokens, p.hit_ratio_blocks]
            for p in curve
        ],
    )
    summary = texts(
        "chart.curve.summary",
        first=show(x[0], unit, texts),
        first_hit=show(first.hit_ratio_tokens, "ratio", texts),
        last=show(x[-1], unit, texts),
        last_hit=show(last.hit_ratio_tokens, "ratio", texts),
    )
    return ChartView(
        id="curve",
        title=texts("chart.curve.title"),
        origin="computed",
        summary=summary,
        figure=figure,
        table=table_view(
            pick_table(record, CURVE_TABLES) or table,
            source=texts("source.hit_curve"),
            origin="computed",
        ),
    )


def _ceiling(series: Sequence[Series]) -> float:
    """The next tenth above the largest share, at most 1."""
    top = max((float(v) for one in series for v in one.y if v is not None), default=1.0)
    return next((step / 10 for step in range(1, 11) if step / 10 > top), 1.0)


def _tier_marks(record: AuditRecord, x: Sequence[float]) -> list[Mark]:
    """Tier sizes among the assumptions that lie on the axis."""
    return [
        Mark(float(one.value), one.title or one.id)
        for one in record.assumptions
        if one.unit in ("bytes", "B")
        and isinstance(one.value, int | float)
        and one.id.endswith(TIER_SIZES)
        and min(x) <= one.value <= max(x)
    ]


def reuse_by_bucket(record: AuditRecord, texts: Texts) -> ChartView:
    """Prompt tokens and the reusable ones among them, by prompt length."""
    table = pick_table(record, REUSE_TABLES)
    columns = Columns(table) if table else None
    bucket = columns.find("prompt_bucket") if columns else None
    whole = columns.find("prompt_tokens") if columns else None
    part = columns.find("reusable_tokens") if columns else None
    if table is None or columns is None or bucket is None or whole is None or part is None:
        return absent("reuse_bucket", texts, "computed")
    names = columns.buckets(bucket)
    parts = [("prompt", whole), ("reusable", part), ("cached", columns.find("cached_tokens"))]
    series = []
    for style, (key, index) in enumerate(parts):
        if index is None or not any(value is not None for value in columns.numbers(index)):
            continue
        label = texts(f"chart.reuse_bucket.{key}")
        hover = [f"{plot_text(label)}: {show(v, 'tokens', texts)}" for v in columns.cells(index)]
        colour = (PALETTE[0], PALETTE[0], PALETTE[1])[style]
        values = columns.numbers(index)
        series.append(Series(label, names, values, colour, style, hover, faint=style == 0))
    top = largest(columns, part)
    return ChartView(
        id="reuse_bucket",
        title=texts("chart.reuse_bucket.title"),
        origin="computed",
        summary=texts(
            "chart.reuse_bucket.summary",
            bucket=names[top],
            value=show(columns.cells(part)[top], "tokens", texts),
            whole=show(columns.cells(whole)[top], "tokens", texts),
        ),
        figure=charts.columns(
            series, x=Axis(texts("axis.bucket"), "category"), y=Axis(texts("axis.tokens"), "count")
        ),
        table=table_view(table, origin="computed"),
    )


def kv_bytes(record: AuditRecord, texts: Texts) -> ChartView:
    """How many requests of each size there are, and which sizes carry the bytes."""
    spread = record.kv.distribution
    table = pick_table(record, KV_TABLES)
    columns = Columns(table) if table else None
    low = columns.find("kv_bytes_bucket") if columns else None
    count = columns.find("requests") if columns else None
    held = columns.find("kv_bytes") if columns else None
    if table is None or columns is None or low is None or count is None or held is None:
        return absent("kv", texts, "computed")
    names = [f"≥ {name}" for name in columns.shown(low)]
    panels = []
    for style, (index, axis) in enumerate(
        (
            (count, Axis(texts("axis.requests"), "count")),
            (held, Axis(texts("axis.kv_bytes"), "bytes")),
        )
    ):
        unit = table.units[index]
        hover = [
            f"{n}: {show(v, unit, texts)}" for n, v in zip(names, columns.cells(index), strict=True)
        ]
        x = [value or 0.0 for value in columns.numbers(index)]
        panels.append(Panel([Series(axis.title, x, names, PALETTE[style], style, hover)], axis))
    return ChartView(
        id="kv",
        title=texts("chart.kv.title"),
        origin="computed",
        summary=texts(
            "chart.kv.summary",
            p50=show(spread.p50, "bytes", texts),
            p90=show(spread.p90, "bytes", texts),
            maximum=show(spread.maximum, "bytes", texts),
            bucket=columns.shown(low)[largest(columns, held)],
        ),
        is_wide=True,
        figure=charts.side_by_side(panels),
        table=table_view(table, origin="computed"),
    )
