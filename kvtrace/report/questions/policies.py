"""Capacity or policy: what a better eviction rule could bring, and what only more room brings."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, Kind, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import PALETTE
from kvtrace.report.questions.facts import Facts, Row, facts
from kvtrace.report.questions.part import Part, absent_part, chart_of, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

_FOLDED: Final = ("policies/gaps", "policies/second_use")
_BOUNDS: Final = ("strict_optimum_low", "strict_optimum_high", "relaxed_optimum", "unlimited")
_MOST_LINES: Final = 6


def policies(record: AuditRecord, texts: Texts) -> Part:
    """Whether a better policy or more capacity would bring more, at each capacity."""
    gaps = facts(record, "policies/gaps").known("policy_gap_high_ratio", "capacity_gap_low_ratio")
    weight = next(iter(gaps.values("weight")), None)
    gaps = gaps.where(weight=weight)
    small, large = gaps.smallest("capacity_blocks"), gaps.largest("policy_gap_high_ratio")
    if small is None or large is None:
        return absent_part("policies", texts)
    chart = _hits(facts(record, "policies/hits").where(weight=weight, admission="all"), texts)
    picked = dict.fromkeys((small["capacity_blocks"], large["capacity_blocks"]))
    rows = [row for row in (small, large) if picked.pop(row["capacity_blocks"], "gone") is None]
    return Part(
        "policies",
        texts("q.policies.title"),
        sentences=tuple(_gap(row, texts) for row in rows),
        charts=(chart,) if chart else (),
        folded=tables(record, _FOLDED, "computed"),
    )


def _gap(row: Row, texts: Texts) -> str:
    shown = {name: row.show(name, texts) for name in row.table.columns}
    shown["capacity"] = _capacity(row, texts)
    which = texts(f"q.policies.larger.{row.text('larger_gap') or 'unclear'}")
    shown["policy_gap"] = _span(row, "policy_gap", texts)
    shown["capacity_gap"] = _span(row, "capacity_gap", texts)
    return texts("q.policies.gap", **(shown | {"which": which}))


def _span(row: Row, name: str, texts: Texts) -> str:
    low, high = row.show(f"{name}_low_ratio", texts), row.show(f"{name}_high_ratio", texts)
    return low if low == high else f"{low} – {high}"


def _capacity(row: Row, texts: Texts) -> str:
    column = "capacity_bytes" if row["capacity_bytes"] is not None else "capacity_blocks"
    return row.show(column, texts)


def _hits(rows: Facts, texts: Texts) -> ChartView | None:
    """Hit ratio by capacity of each policy and bound, the bounds first."""
    table = rows.table
    rows = rows.known("capacity_blocks", "hit_ratio_tokens")
    if table is None or not rows:
        return None
    kind: Kind = "bytes" if len(rows.known("capacity_bytes").rows) == len(rows.rows) else "count"
    column = "capacity_bytes" if kind == "bytes" else "capacity_blocks"
    names = _order(rows)[:_MOST_LINES]
    series = [_line(rows.where(policy=name), column, i, texts) for i, name in enumerate(names)]
    return chart_of(
        "policies",
        texts,
        charts.lines(
            series,
            x=Axis(texts("axis.capacity"), kind, log=True),
            y=Axis(texts("axis.hit_ratio"), "ratio"),
        ),
        table_view(table, origin="computed"),
        summary=texts("chart.policies.summary"),
    )


def _order(rows: Facts) -> list[str]:
    """LRU, the bounds, then the policies that serve most."""
    every = [str(name) for name in rows.values("policy")]
    first = [name for name in ("lru", *_BOUNDS) if name in every]
    others = [name for name in every if name not in first]
    best = {name: rows.where(policy=name).largest("hit_ratio_tokens") for name in others}
    ranked = sorted(others, key=lambda name: -(_ratio(best[name])))
    return [*first, *ranked]


def _ratio(row: Row | None) -> float:
    return (row.number("hit_ratio_tokens") if row else None) or 0.0


def _line(rows: Facts, column: str, style: int, texts: Texts) -> Series:
    row = rows.first()
    code = "" if row is None else row.text("policy")
    key = f"policy.{code}"
    name = texts(key) if texts.has(key) else code
    return Series(
        name,
        [one.number(column) or 0.0 for one in rows],
        [one.number("hit_ratio_tokens") for one in rows],
        PALETTE[style % len(PALETTE)],
        style,
        [
            f"{plot_text(name)}: {one.show('hit_ratio_tokens', texts)}<br>{_capacity(one, texts)}"
            for one in rows
        ],
    )
