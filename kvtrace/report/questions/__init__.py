"""The questions of the reuse and latency sections, each with its answer in words.

Only choosing, ordering and formatting happens here: every number is a cell of a query's table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvtrace.audit.record import AuditRecord
from kvtrace.report.questions.break_even import break_even, links, residency
from kvtrace.report.questions.capacity import capacity
from kvtrace.report.questions.economics import economics_parts
from kvtrace.report.questions.groups import groups
from kvtrace.report.questions.how_much import how_much, still_climbing
from kvtrace.report.questions.kv_room import kv_parts
from kvtrace.report.questions.latency import hits_help, quantiles, tail
from kvtrace.report.questions.part import SHORT_ROWS, Notice, Part
from kvtrace.report.questions.policies import policies
from kvtrace.report.questions.pooling import pooling
from kvtrace.report.questions.scopes import scopes
from kvtrace.report.questions.sharing import sharing
from kvtrace.report.questions.sizing import placement, pool_size
from kvtrace.report.questions.what_if import block_size, generated
from kvtrace.report.questions.writes import writes
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView

__all__ = [
    "SHORT_ROWS",
    "Notice",
    "Part",
    "economics_parts",
    "kv_parts",
    "latency_parts",
    "reuse_parts",
    "sizing_parts",
    "still_climbing",
]


def reuse_parts(
    record: AuditRecord, texts: Texts, drawn: Mapping[str, ChartView]
) -> tuple[Part, ...]:
    """The questions about reuse; what needs blocks is said once where there are none."""
    parts = (
        how_much(record, texts, drawn),
        capacity(record, texts, drawn),
        sharing(record, texts),
        scopes(record, texts),
        generated(record, texts),
        block_size(record, texts),
        writes(record, texts),
        policies(record, texts),
        pooling(record, texts),
        groups(record, texts),
    )
    return parts if record.reuse.unknown_reason is None else _in_one_line(parts, texts)


def _in_one_line(parts: Sequence[Part], texts: Texts) -> tuple[Part, ...]:
    """The questions that have an answer, and all the others as one."""
    answered = [part for part in parts if part.missing is None]
    titles = texts("q.unanswered.join").join(
        f"{part.title}" for part in parts if part.missing is not None
    )
    if not titles:
        return tuple(answered)
    missing = texts("q.unanswered.missing", titles=titles)
    return (*answered, Part("unanswered", texts("q.unanswered.title"), missing=missing))


def latency_parts(record: AuditRecord, texts: Texts) -> tuple[Part, ...]:
    """The questions about latency."""
    return (quantiles(record, texts), tail(record, texts), hits_help(record, texts))


def sizing_parts(record: AuditRecord, texts: Texts) -> tuple[Part, ...]:
    """The questions about the size of a pool, what it must carry, and where it breaks even."""
    parts = (
        pool_size(record, texts),
        residency(record, texts),
        placement(record, texts),
        break_even(record, texts),
        links(record, texts),
    )
    return _in_one_line(parts, texts)
