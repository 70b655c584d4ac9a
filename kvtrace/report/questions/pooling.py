"""Private caches against one pool of the same bytes, and what a pool adds over what is there."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord, Cell
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Panel, Series
from kvtrace.report.figures.common import PALETTE
from kvtrace.report.questions.facts import Facts, Row, facts
from kvtrace.report.questions.part import Part, absent_part, chart_of
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

_ROUTINGS: Final = ("round_robin", "session_sticky", "kv_centric", "kv_centric_exact")
_ADDED: Final = (
    ("hbm_hit_ratio_tokens", "hbm"),
    ("dram_hit_ratio_tokens", "dram"),
    ("over_hbm_and_dram_hit_ratio_tokens", "pool"),
)
"""What is served in turn: HBM, then idle DRAM, then what only the pool adds."""
_MOST_PANELS: Final = 3
_MOST_ROWS: Final = 12


def pooling(record: AuditRecord, texts: Texts) -> Part:
    """The hit ratio that sharing adds, by instances, routing and capacity."""
    hits = facts(record, "pooling/hit_ratio").known("added_hit_ratio_tokens")
    several = Facts(hits.table, tuple(r for r in hits if (r.number("instances") or 0) > 1))
    added = facts(record, "pooling/added").known("over_hbm_and_dram_hit_ratio_tokens")
    whole = _with_dram(added)
    if not hits and not added:
        return absent_part("pooling", texts)
    sentences = [*_best(several, texts), *_added_range(whole, texts)]
    if not several:
        sentences.insert(0, texts("q.pooling.one"))
    drawn = (_against(several, texts), _stack(whole, texts))
    return Part(
        "pooling",
        texts("q.pooling.title"),
        sentences=tuple(sentences),
        charts=tuple(view for view in drawn if view is not None),
    )


def _with_dram(rows: Facts) -> Facts:
    """The rows whose instances hold idle DRAM, as far as there are any.

    One instance has nothing to route: a single row stands for every routing.
    """
    kept = tuple(row for row in rows if (row.number("dram_blocks") or 0) > 0) or rows.rows
    if all(row["instances"] == 1 for row in kept):
        kept = kept[:1]
    return Facts(rows.table, kept)


def routing_name(code: Cell, texts: Texts) -> str:
    """How requests are routed, in words."""
    key = f"routing.{code}"
    return texts(key) if texts.has(key) else str(code)


def _best(rows: Facts, texts: Texts) -> list[str]:
    """Where a pool of the same bytes adds most, for each routing."""
    found = []
    for routing in _ROUTINGS:
        row = rows.where(routing=routing).largest("added_hit_ratio_tokens")
        if row is not None:
            shown = {name: row.show(name, texts) for name in row.table.columns}
            shown["instances"] = row.text("instances")
            shown["routing"] = routing_name(routing, texts)
            found.append(texts("q.pooling.most", **shown))
    return found


def _added_range(rows: Facts, texts: Texts) -> list[str]:
    column = "over_hbm_and_dram_hit_ratio_tokens"
    low, high = rows.smallest(column), rows.largest(column)
    if low is None or high is None:
        return []
    if low[column] == high[column]:
        return [texts("q.pooling.added_one", share=low.show(column, texts))]
    return [
        texts(
            "q.pooling.added",
            low=low.show(column, texts),
            low_case=_case(low, texts),
            high=high.show(column, texts),
            high_case=_case(high, texts),
        )
    ]


def _case(row: Row, texts: Texts) -> str:
    key = "q.pooling.case_one" if row["instances"] == 1 else "q.pooling.case"
    return texts(
        key,
        instances=row.text("instances"),
        routing=routing_name(row["routing"], texts),
    )


def _against(rows: Facts, texts: Texts) -> ChartView | None:
    """One panel for each number of instances: private caches by routing, and the pool."""
    counts = rows.values("instances")[:_MOST_PANELS]
    if rows.table is None or not counts:
        return None
    panels = []
    for number, count in enumerate(counts):
        mine = rows.where(instances=count)
        title = texts("axis.pooling", instances=count)
        panels.append(Panel(_lines(mine, texts), Axis(title, "ratio"), named=number == 0))
    x = Axis(texts("axis.total_blocks"), "count", log=True)
    return chart_of(
        "pooling",
        texts,
        charts.stacked_panels(panels, x=x),
        table_view(rows.table, origin="computed"),
        summary=texts("chart.pooling.summary"),
    )


def _lines(rows: Facts, texts: Texts) -> list[Series]:
    known = [name for name in _ROUTINGS if rows.where(routing=name)]
    series = [
        _line(
            rows.where(routing=routing),
            "private_hit_ratio_tokens",
            texts("chart.pooling.private", routing=routing_name(routing, texts)),
            style,
            texts,
        )
        for style, routing in enumerate(known, start=1)
    ]
    pooled = rows.where(routing=known[0]) if known else rows
    name = texts("chart.pooling.pooled")
    return [_line(pooled, "pooled_hit_ratio_tokens", name, 0, texts), *series]


def _line(rows: Facts, column: str, name: str, style: int, texts: Texts) -> Series:
    x = [row.number("total_capacity_blocks") or 0.0 for row in rows]
    hover = [
        f"{plot_text(name)}: {row.show(column, texts)}<br>"
        f"{row.show('total_capacity_blocks', texts)}"
        for row in rows
    ]
    values = [row.number(column) for row in rows]
    return Series(name, x, values, PALETTE[style % len(PALETTE)], style, hover)


def _stack(rows: Facts, texts: Texts) -> ChartView | None:
    """What HBM, then idle DRAM, then the pool serve: the pool's part is an increment."""
    if rows.table is None or not rows:
        return None
    shown = Facts(rows.table, rows.rows[:_MOST_ROWS])
    names = [plot_text(_case(row, texts), width=24) for row in shown]
    series = []
    for style, (column, key) in enumerate(_ADDED):
        name = texts(f"chart.pool_added.{key}")
        values = [row.number(column) or 0.0 for row in shown]
        hover = [f"{plot_text(name)}: {row.show(column, texts)}" for row in shown]
        series.append(Series(name, values, names, PALETTE[style], style, hover))
    return chart_of(
        "pool_added",
        texts,
        charts.bars(series, x=Axis(texts("axis.hit_ratio"), "ratio")),
        table_view(rows.table, origin="computed"),
        summary=texts("chart.pool_added.summary"),
    )
