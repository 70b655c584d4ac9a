"""How much is reusable, and by whose definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report.questions.facts import Row, facts
from kvtrace.report.questions.part import Notice, Part, absent_part, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, TableView, table_view

_FOLDED: Final = (
    "reuse/definitions_explained",
    "reuse/cold_and_warm",
    "reuse/still_climbing",
    "reuse/over_time",
    "reuse/summary",
)
_TRENDS: Final = {"climbing": "warning", "falling": "info"}


def how_much(record: AuditRecord, texts: Texts, drawn: Mapping[str, ChartView]) -> Part:
    """The share that is reusable, the definitions side by side, and why they differ."""
    summary = facts(record, "reuse/summary").first()
    known = facts(record, "reuse/definitions").known("ratio")
    explained = facts(record, "reuse/definitions_explained").known("difference")
    sentences = []
    if summary is not None and summary["reusable_tokens"] is not None:
        shown = {name: summary.show(name, texts) for name in summary.table.columns}
        sentences.append(texts("q.how_much.reusable", **shown))
    low, high = known.smallest("ratio"), known.largest("ratio")
    if low is not None and high is not None and low["ratio"] != high["ratio"]:
        sentences.append(
            texts(
                "q.how_much.range",
                low=low.show("ratio", texts),
                low_name=definition_name(low.text("definition"), texts),
                high=high.show("ratio", texts),
                high_name=definition_name(high.text("definition"), texts),
            )
        )
    if not sentences and not known:
        return absent_part("how_much", texts)
    why = tables(record, ("reuse/definitions_explained",), "computed") if explained else ()
    return Part(
        "how_much",
        texts("q.how_much.title"),
        sentences=tuple(sentences),
        points=tuple(_why(row, texts) for row in explained if row["cause_numerator"]),
        points_title=texts("q.how_much.why"),
        points_source=why[0] if why else None,
        small=tuple(
            view
            for view in (drawn["reuse_bucket"],)
            if view.figure is not None and view.origin == "computed"
        ),
        tables_first=True,
        short=_definitions(record, bool(known)),
        folded=tables(record, _FOLDED, "computed") if summary or known else (),
    )


def _definitions(record: AuditRecord, is_known: bool) -> tuple[TableView, ...]:
    table = record.tables.get("reuse/definitions")
    return (table_view(table, origin="computed"),) if table is not None and is_known else ()


def definition_name(code: str, texts: Texts) -> str:
    """A definition in words, its code behind."""
    key = f"definition.{code}"
    return f"{texts(key)}, `{code}`" if texts.has(key) else f"`{code}`"


def _why(row: Row, texts: Texts) -> str:
    key = f"cause.{row.text('cause')}"
    return texts(
        "q.how_much.because",
        name=row.text("definition"),
        ratio=row.show("ratio", texts),
        other=row.text("other_definition"),
        other_ratio=row.show("other_ratio", texts),
        because=texts(key) if texts.has(key) else row.text("because"),
        part=row.show("cause_numerator", texts),
        whole=row.show("cause_denominator", texts),
        share=row.show("cause_ratio", texts),
    )


def still_climbing(record: AuditRecord, texts: Texts) -> Notice | None:
    """A warning where the log ends before reuse has settled."""
    row = facts(record, "reuse/still_climbing").first()
    if row is None or row.text("trend") not in _TRENDS:
        return None
    trend = row.text("trend")
    shown = {name: row.show(name, texts) for name in row.table.columns if name != "trend"}
    return Notice(texts(f"q.climbing.{trend}", **shown), _TRENDS[trend], "reuse/still_climbing")
