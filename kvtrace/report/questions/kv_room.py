"""The HBM budget, the contexts that fit, and the tiers that KV can come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report.questions.facts import Facts, Row, facts
from kvtrace.report.questions.part import Part, absent_part, choose
from kvtrace.report.texts import Texts
from kvtrace.report.view import TableView, table_view

_BUDGET: Final = "kv/hbm_budget"
_CONTEXTS: Final = "kv/contexts"
_TIERS: Final = "kv/tiers"
_BUDGET_COLUMNS: Final = ("part", "instance_bytes", "gpu_bytes", "ratio_hbm")
_TIER_COLUMNS: Final = (
    *("tier", "bytes_per_s", "ratio_hbm", "tokens_2k_s", "tokens_8k_s", "tokens_32k_s"),
    *("over_recompute_8k", "slowest", "kind"),
)


def kv_parts(record: AuditRecord, texts: Texts) -> tuple[Part, ...]:
    """Room for KV, and where else it can lie."""
    return (_room(record, texts), _tiers(record, texts))


def _room(record: AuditRecord, texts: Texts) -> Part:
    budget, contexts = facts(record, _BUDGET), facts(record, _CONTEXTS)
    whole = budget.where(part="hbm").first()
    weights = budget.where(part="weights").first()
    if budget.table is None or contexts.table is None or whole is None or weights is None:
        return absent_part("kv_room", texts)
    cache, running = budget.where(part="cache").first(), budget.where(part="running_kv").first()
    sentences = [
        texts("q.kv_room.contexts", list=_contexts(contexts.rows, texts)),
        texts(
            "q.kv_room.budget",
            hbm=whole.show("instance_bytes", texts),
            weights=weights.show("instance_bytes", texts),
        ),
    ]
    if cache is not None and running is not None:
        sentences.append(
            texts(
                "q.kv_room.cache",
                running=running.show("instance_bytes", texts),
                cache=cache.show("instance_bytes", texts),
            )
        )
    return Part(
        "kv_room",
        texts("q.kv_room.title"),
        sentences=tuple(sentences),
        short=(
            _named(budget, _BUDGET_COLUMNS, "kv/hbm_parts", {"part": "q.kv_room.part"}, texts),
            table_view(contexts.table, source=texts("source.cost")),
        ),
        folded=(table_view(budget.table, source=texts("source.cost")),),
    )


def _contexts(rows: Sequence[Row], texts: Texts) -> str:
    shown = (
        texts(
            "q.kv_room.context",
            count=row.show("fit_instance", texts),
            tokens=row.show("context_tokens", texts),
        )
        for row in rows
    )
    return texts("q.kv_room.joint").join(shown)


def _tiers(record: AuditRecord, texts: Texts) -> Part:
    rows = facts(record, _TIERS)
    again = rows.where(tier="recompute").first()
    if rows.table is None or again is None:
        return absent_part("kv_tiers", texts)
    slow = [row.text("tier") for row in rows if (row.number("over_recompute_8k") or 0.0) > 1.0]
    known = again.number("tokens_8k_s") is not None
    sentences = [texts("q.kv_tiers.read")]
    if known:
        key = "q.kv_tiers.slower" if slow else "q.kv_tiers.all_faster"
        names = texts("q.kv_room.joint").join(
            texts.or_code("q.kv_tiers.tier", name) for name in slow
        )
        sentences.insert(0, texts(key, tiers=names, seconds=again.show("tokens_8k_s", texts)))
    words = {"tier": "q.kv_tiers.tier", "slowest": "link_id", "kind": "kind"}
    short = _named(rows, _TIER_COLUMNS, "kv/tiers_short", words, texts)
    return Part(
        "kv_tiers",
        texts("q.kv_tiers.title"),
        sentences=tuple(sentences),
        short=(short,),
        folded=(table_view(rows.table, source=texts("source.cost")),),
    )


def _named(
    rows: Facts, columns: Sequence[str], id: str, words: Mapping[str, str], texts: Texts
) -> TableView:
    """Some columns of a table, with the words of the page for the names in some of them."""
    if rows.table is None:
        raise ValueError(f"{id} has no table")
    short = choose(rows.table, id, columns, rows.rows)
    for column, prefix in words.items():
        place = short.columns.index(column)
        for row in short.rows:
            if row[place] is not None:
                row[place] = texts.or_code(prefix, str(row[place]))
    return table_view(short, source=texts("source.cost"))
