"""By LLM, tenant, conversation, adapter, kind of request, hour, where there are several."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report.questions.facts import Facts, Row, facts
from kvtrace.report.questions.part import SHORT_ROWS, Part, absent_part
from kvtrace.report.texts import Texts
from kvtrace.report.view import TableView, table_view

_GROUPS: Final = ("llm", "tenant", "user", "session", "adapter", "request_type", "hour_of_day")


def groups(record: AuditRecord, texts: Texts) -> Part:
    """One sentence for each kind of group with more than one member, its table behind."""
    several = {key: rows for key in _GROUPS if (rows := _known(record, key))}
    if not several:
        return absent_part("groups", texts)
    short: list[TableView] = []
    folded: list[TableView] = []
    for rows in several.values():
        if rows.table is not None:
            home = short if len(several) == 1 and len(rows.rows) <= SHORT_ROWS else folded
            home.append(table_view(rows.table, origin="computed"))
    return Part(
        "groups",
        texts("q.groups.title"),
        sentences=tuple(_range(key, rows, texts) for key, rows in several.items()),
        short=tuple(short),
        folded=tuple(folded),
    )


def _known(record: AuditRecord, key: str) -> Facts:
    """The rows of a kind of group; none unless two of them know their reuse."""
    rows = facts(record, f"reuse/by_{key}")
    known = rows.known("reusable_ratio_tokens")
    return rows if len(known.rows) > 1 else Facts(rows.table, ())


def _range(key: str, rows: Facts, texts: Texts) -> str:
    column = "reusable_ratio_tokens"
    named = Facts(rows.table, tuple(row for row in rows if row["is_rest"] is not True))
    low, high = named.smallest(column), named.largest(column)
    if low is None or high is None:
        return ""
    return texts(
        f"q.groups.{key}",
        low=low.show(column, texts),
        low_name=_name(low, key, texts),
        high=high.show(column, texts),
        high_name=_name(high, key, texts),
    )


def _name(row: Row, key: str, texts: Texts) -> str:
    if key == "hour_of_day":
        return f"{row.text('hour_of_day')}:00"
    return row.show("label", texts)
