"""Who may share a cache: what each scope keeps of the reuse, and what isolation costs."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.audit.sharing.record import SharingScope
from kvtrace.report.format import format_value, safe_text
from kvtrace.report.questions.facts import Facts, facts
from kvtrace.report.questions.part import Part, absent_part, choose
from kvtrace.report.texts import Texts
from kvtrace.report.view import quantity_view, table_view

_TABLE: Final = "sharing/scopes"
_COLUMNS: Final = (
    *("scope", "groups", "known_requests", "reusable_tokens", "reusable_ratio_tokens"),
    *("lost_tokens", "lost_ratio_tokens", "held_bytes", "worth_usd_per_month"),
    "isolation_usd_per_month",
)


def scopes(record: AuditRecord, texts: Texts) -> Part:
    """Reuse and money by scope; what is not known, with the flag that would tell."""
    rows = facts(record, _TABLE)
    if not record.sharing or rows.table is None:
        return absent_part("scopes", texts)
    table = choose(rows.table, "sharing/scopes_short", _COLUMNS, rows.rows)
    view = table_view(table, origin="computed")
    return Part(
        "scopes",
        texts("q.scopes.title"),
        sentences=tuple(_sentences(record.sharing, rows, texts)),
        points=tuple(_unknown(scope, texts) for scope in record.sharing if scope.unknown_reason),
        points_title=texts("q.scopes.unknown_title"),
        points_source=view,
        short=(view,),
    )


def _sentences(scopes: list[SharingScope], rows: Facts, texts: Texts) -> list[str]:
    found = []
    for scope in scopes:
        row = rows.where(scope=scope.scope).first()
        if row is None or scope.lost_tokens is None or scope.scope == "global":
            continue
        shown = {name: row.show(name, texts) for name in row.table.columns}
        shown["groups"] = format_value(scope.groups, "") or ""
        found.append(texts(f"q.scopes.{scope.scope}", **shown))
        if scope.isolation is not None:
            view = quantity_view(scope.isolation, texts)
            usd = f"{view.text} ({view.interval})" if view.interval else view.text or ""
            found.append(texts(f"q.scopes.{scope.scope}_usd", usd=usd))
    return [*found, texts("q.scopes.bound")]


def _unknown(scope: SharingScope, texts: Texts) -> str:
    return texts(
        f"q.scopes.unknown_{scope.scope}",
        reason=safe_text(scope.unknown_reason or ""),
        flag=safe_text(scope.flag or ""),
    )
