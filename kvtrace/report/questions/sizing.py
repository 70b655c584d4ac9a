"""How large a pool, what it must carry, what to keep where: the answers of the sizing section."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import PALETTE, ceiling
from kvtrace.report.format import format_value
from kvtrace.report.questions.facts import Facts, Row, facts
from kvtrace.report.questions.part import Part, absent_part, chart_of, choose, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

_SIZE: Final = "sizing/pool_size"
_TRAFFIC: Final = "sizing/pool_traffic"
_PLACEMENT: Final = "sizing/placement"
_SIZE_COLUMNS: Final = (
    *("medium", "usd_per_gb_month", "best_bytes", "best_hit_tokens", "value_usd_per_month"),
    *("cost_usd_per_month", "net_usd_per_month", "knee_bytes", "all_bytes"),
)
_MARGINS: Final = (
    ("marginal_usd_per_gb_month", "value"),
    ("dram_usd_per_gb_month", "dram"),
    ("ssd_usd_per_gb_month", "ssd"),
)


def pool_size(record: AuditRecord, texts: Texts) -> Part:
    """The recommended size, the two others beside it, and the ports."""
    sizes = facts(record, _SIZE)
    if sizes.table is None or not sizes:
        return absent_part("pool_size", texts)
    table = choose(sizes.table, "sizing/pool_size_short", _SIZE_COLUMNS, sizes.rows)
    drawn = (_hits(record, texts), _margins(record, texts))
    return Part(
        "pool_size",
        texts("q.pool_size.title"),
        sentences=(
            *(_size(row, texts) for row in sizes),
            *_other_sizes(record, texts),
            *_ports(record, texts),
            texts("q.pool_size.bound"),
        ),
        small=tuple(view for view in drawn if view is not None),
        short=(table_view(table, origin="modelled"),),
        folded=tables(record, (_TRAFFIC,), "modelled"),
    )


def placement(record: AuditRecord, texts: Texts) -> Part:
    """Hot, warm and cold: bytes and hits by the time since the last use."""
    rows = facts(record, _PLACEMENT)
    if rows.table is None or not rows:
        return absent_part("placement", texts)
    busiest = rows.largest("reused_tokens_share")
    shown = {} if busiest is None else _shown(busiest, texts)
    return Part(
        "placement",
        texts("q.placement.title"),
        sentences=(
            *((texts("q.placement.most", **shown),) if shown else ()),
            texts("q.placement.how"),
        ),
        short=(table_view(rows.table, origin="modelled"),),
    )


def _shown(row: Row, texts: Texts) -> dict[str, str]:
    return {name: row.show(name, texts) for name in row.table.columns}


def _size(row: Row, texts: Texts) -> str:
    key = f"medium.{row.text('medium')}"
    shown = _shown(row, texts)
    shown["medium"] = texts(key) if texts.has(key) else row.text("medium")
    best = row.number("best_bytes")
    if best is None:
        return texts("q.pool_size.no_price", **shown)
    return texts("q.pool_size.best" if best else "q.pool_size.none", **shown)


def _other_sizes(record: AuditRecord, texts: Texts) -> list[str]:
    """The smallest pool that adds hits, and the one that keeps nearly all; not recommended."""
    numbers = () if record.sizing is None else record.sizing.numbers
    found = {one.id: one for one in numbers}
    if "nearly_all_bytes" not in found:
        return []
    return [
        texts(f"q.pool_size.{one}", size=format_value(found[one].value, "bytes") or "")
        if one in found
        else texts("q.pool_size.no_size_adds")
        for one in ("smallest_that_adds_bytes", "nearly_all_bytes")
    ]


def _ports(record: AuditRecord, texts: Texts) -> list[str]:
    rows = facts(record, _TRAFFIC)
    read, written = (rows.where(direction=one).first() for one in ("read", "written"))
    most = rows.largest("ports_per_node")
    if read is None or written is None or most is None:
        return []
    return [
        texts(
            "q.pool_size.ports",
            minutes=read.show("minutes", texts),
            read=read.show("p99_bytes_per_s", texts),
            written=written.show("p99_bytes_per_s", texts),
            ports=format_value(most["ports_per_node"], "ports") or "",
            link_limit=read.show("link_limit", texts),
        )
    ]


def _hits(record: AuditRecord, texts: Texts) -> ChartView | None:
    rows = facts(record, "sizing/pool_curve").known("pool_bytes", "pool_hit_ratio_tokens")
    last = rows.largest("pool_bytes")
    if rows.table is None or last is None:
        return None
    y = [row.number("pool_hit_ratio_tokens") for row in rows]
    hover = [
        f"{row.show('pool_bytes', texts)}<br>{row.show('pool_hit_ratio_tokens', texts)}"
        for row in rows
    ]
    name = texts("axis.pool_hits")
    return chart_of(
        "pool_curve",
        texts,
        charts.lines(
            [Series(name, _sizes(rows), y, PALETTE[0], 0, hover)],
            x=Axis(texts("axis.pool_bytes"), "bytes", log=True),
            y=Axis(name, "ratio", bounds=(0.0, ceiling(y))),
            height=320,
        ),
        table_view(rows.table, origin="modelled"),
        summary=texts(
            "chart.pool_curve.summary",
            size=last.show("pool_bytes", texts),
            ratio=last.show("pool_hit_ratio_tokens", texts),
        ),
        origin="modelled",
    )


def _margins(record: AuditRecord, texts: Texts) -> ChartView | None:
    """What a GB more is worth against what it costs."""
    rows = facts(record, "sizing/pool_curve").known("marginal_usd_per_gb_month")
    first = rows.first()
    if rows.table is None or first is None:
        return None
    series = []
    for style, (column, key) in enumerate(_MARGINS):
        known = rows.known(column)
        if not known:
            continue
        name = texts(f"chart.pool_margin.{key}")
        hover = [f"{plot_text(name)}: {row.show(column, texts)}" for row in known]
        values = [row.number(column) for row in known]
        series.append(Series(name, _sizes(known), values, PALETTE[style], style, hover))
    return chart_of(
        "pool_margin",
        texts,
        charts.lines(
            series,
            x=Axis(texts("axis.pool_bytes"), "bytes", log=True),
            y=Axis(texts("axis.usd_per_gb_month"), "count"),
            height=320,
        ),
        None,
        summary=texts(
            "chart.pool_margin.summary", value=first.show("marginal_usd_per_gb_month", texts)
        ),
        origin="modelled",
    )


def _sizes(rows: Facts) -> list[float | str]:
    return [row.number("pool_bytes") or 0.0 for row in rows]
