"""Who shares: the same conversation that goes on, or others that begin alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import PALETTE
from kvtrace.report.questions.facts import Facts, Row, facts
from kvtrace.report.questions.part import SHORT_ROWS, Part, absent_part, chart_of, choose, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, TableView, table_view

_KINDS: Final = ("continuation", "continuation_and_sharing", "sharing", "repeated_prompt")
_TREE: Final = (
    *("node", "depth_tokens", "segment_tokens", "requests", "conversations"),
    *("saved_tokens", "saved_ratio_tokens"),
)
"""Columns of the tree of prefixes."""
_FOLDED: Final = ("sharing/how_known", "sharing/roots", "sharing/top_prefixes")
_MOST_INDENT: Final = 6


def sharing(record: AuditRecord, texts: Texts) -> Part:
    """Whose blocks are reused, by which prefixes, and from which turn on."""
    kinds = facts(record, "sharing/continuation_and_sharing").known("reusable_tokens_share")
    if not kinds:
        return absent_part("sharing", texts)
    by_turn = _by_turn(record, texts)
    tree = _tree(record, texts)
    return Part(
        "sharing",
        texts("q.sharing.title"),
        sentences=tuple(_sentences(record, kinds, texts)),
        charts=(_kinds(kinds, texts), *((by_turn,) if by_turn else ())),
        short=(tree,) if tree else (),
        folded=tables(record, _FOLDED, "computed"),
    )


def _sentences(record: AuditRecord, kinds: Facts, texts: Texts) -> list[str]:
    share = {row.text("kind"): row.show("reusable_tokens_share", texts) for row in kinds}
    found = [texts("q.sharing.kinds", **{key: share.get(key, "0 %") for key in _KINDS})]
    known = facts(record, "sharing/how_known").first()
    if known is not None and known["continuations_ratio"] is not None:
        shown = {name: known.show(name, texts) for name in known.table.columns}
        key = f"q.sharing.known.{known.text('known_from')}"
        from_what = texts(key) if texts.has(key) else known.text("known_from")
        found.append(texts("q.sharing.follow", **(shown | {"known_from": from_what})))
    root = facts(record, "sharing/roots").largest("reusable_tokens_share")
    if root is not None:
        shown = {name: root.show(name, texts) for name in root.table.columns}
        found.append(texts("q.sharing.root", **shown))
    return found


def _kinds(kinds: Facts, texts: Texts) -> ChartView:
    series = []
    for style, kind in enumerate(_KINDS):
        for row in kinds.where(kind=kind):
            name = texts(f"chart.sharing_kinds.{kind}")
            shown = row.show("reusable_tokens_share", texts)
            value = row.number("reusable_tokens_share")
            hover = [f"{plot_text(name)}: {shown}<br>{row.show('reusable_tokens', texts)}"]
            place = [plot_text(texts("chart.sharing_kinds.row"))]
            series.append(Series(name, [value or 0.0], place, PALETTE[style], style, hover))
    table = kinds.table
    return chart_of(
        "sharing_kinds",
        texts,
        charts.bars(series, x=Axis(texts("axis.share_of_reusable"), "ratio", bounds=(0.0, 1.0))),
        table_view(table, origin="computed") if table else None,
        summary=texts("chart.sharing_kinds.summary"),
    )


def _by_turn(record: AuditRecord, texts: Texts) -> ChartView | None:
    rows = facts(record, "sharing/by_turn").known("turn_bucket", "reusable_ratio_tokens")
    first, last = rows.first(), rows.largest("turn_bucket")
    if rows.table is None or first is None or last is None or len(rows.rows) < 2:
        return None
    x: list[float | str] = [row.text("turn_bucket") for row in rows]
    series = []
    for style, (column, key) in enumerate(
        (("reusable_ratio_tokens", "reusable"), ("shared_ratio_tokens", "shared"))
    ):
        name = texts(f"chart.by_turn.{key}")
        hover = [
            f"{plot_text(name)}: {row.show(column, texts)}<br>{row.show('requests', texts)}"
            for row in rows
        ]
        values = [row.number(column) for row in rows]
        series.append(Series(name, x, values, PALETTE[style], style, hover))
    return chart_of(
        "by_turn",
        texts,
        charts.lines(
            series,
            x=Axis(texts("axis.turn"), "category"),
            y=Axis(texts("axis.reusable_ratio"), "ratio", bounds=(0.0, 1.0)),
            height=320,
        ),
        table_view(rows.table, origin="computed"),
        summary=texts(
            "chart.by_turn.summary",
            first=first.show("reusable_ratio_tokens", texts),
            last=last.show("reusable_ratio_tokens", texts),
            turn=str(last["turn_bucket"]),
        ),
    )


def _tree(record: AuditRecord, texts: Texts) -> TableView | None:
    """The first prefixes as a tree: each below the one that it goes on from, set in."""
    rows = facts(record, "sharing/top_prefixes")
    table = rows.table
    if table is None or not rows:
        return None
    ordered = _in_tree(Facts(table, rows.rows[:SHORT_ROWS]))
    title, first = texts("q.sharing.tree"), [row for row, _ in ordered]
    chosen = choose(table, "sharing/prefix_tree", _TREE, first, title=title)
    view = table_view(chosen, origin="computed")
    set_in = tuple(
        (replace(cells[0], indent=min(depth, _MOST_INDENT)), *cells[1:])
        for cells, (_, depth) in zip(view.rows, ordered, strict=True)
    )
    return replace(view, rows=set_in, row_count=len(rows.rows))


def _in_tree(rows: Facts) -> list[tuple[Row, int]]:
    """Every row with its depth: parents before children, siblings by rank."""
    listed = {row["node"] for row in rows}
    below: dict[object, list[Row]] = {}
    for row in rows:
        parent = row["parent_node"]
        below.setdefault(parent if parent in listed else None, []).append(row)
    found: list[tuple[Row, int]] = []
    waiting = [(row, 0) for row in reversed(below.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        found.append((row, depth))
        waiting += [(child, depth + 1) for child in reversed(below.get(row["node"], []))]
    return found
