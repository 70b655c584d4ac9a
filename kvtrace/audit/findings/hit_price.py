"""The thesis, measured: a hit saves compute, and what it adds may cost more."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, in_ms, known_only, measured
from kvtrace.audit.findings.latency import of_one_group
from kvtrace.audit.findings.limits import HIT_LOSS
from kvtrace.audit.record import Quantity
from kvtrace.audit.thresholds import MIN_REQUESTS
from kvtrace.audit.view import Row, count, number, rows_of
from kvtrace.audit.words import counted

HIT_PRICE_TABLE: Final = "latency/hit_price"


def hits_save_compute_lose_time(evidence: Evidence) -> Hit | None:
    """Hits shorten prefill, and TTFT is longer with them all the same."""
    rows = [r for r in rows_of(evidence.queries, HIT_PRICE_TABLE) if r.get("prompt_bucket") is None]
    row = next(iter(of_one_group(rows, by="hit_requests")), {})
    low, compute = number(row, "ttft_change_low_ms"), number(row, "compute_change_ms")
    if low is None or compute is None or low <= HIT_LOSS.value or compute >= 0:
        return None
    hits = count(row, "hit_requests") or 0
    added, queue = number(row, "other_change_ms") or 0.0, number(row, "queue_change_ms") or 0.0
    parts = [
        f"At equal prompt length hits shorten compute from {_ms(row, 'compute_without_ms')} to "
        f"{_ms(row, 'compute_with_ms')} and lengthen TTFT from {_ms(row, 'ttft_without_ms')} to "
        f"{_ms(row, 'ttft_with_ms')} (means of {counted(hits, 'request')} with half of the prompt "
        f"or more cached, and {count(row, 'other_requests') or 0:,} without; measured)",
        _what_grew(row, added, queue),
    ]
    return Hit(
        severity="critical",
        confidence="high" if hits >= MIN_REQUESTS.value and _names_loads(row) else "medium",
        message=". ".join(parts),
        evidence=_evidence_of(row),
        title="A hit saves compute and loses time" if added >= queue else "Hits queue for longer",
    )


def _what_grew(row: Row, added: float, queue: float) -> str:
    """The move, or the queue, whichever grew more."""
    if queue > added:
        return (
            f"The queue grew by {in_ms(queue)}: hits came at busy times, or wait there for their "
            "KV (engines that load before they schedule)"
        )
    loads = number(row, "load_ms")
    shown = "" if loads is None else f"; the loads that logs name take {in_ms(loads)} a request"
    return f"What neither queue nor compute explains, the move, grew by {in_ms(added)}{shown}"


def _names_loads(row: Row) -> bool:
    return bool(count(row, "load_known_requests"))


def _ms(row: Row, column: str) -> str:
    return in_ms(number(row, column))


def _evidence_of(row: Row) -> tuple[Quantity, ...]:
    names = (
        "ttft_without_ms",
        "ttft_with_ms",
        "ttft_change_low_ms",
        "ttft_change_high_ms",
        "compute_without_ms",
        "compute_with_ms",
        "queue_change_ms",
        "other_change_ms",
        "load_ms",
    )
    return known_only(
        *(measured(name, number(row, name), "ms", HIT_PRICE_TABLE) for name in names),
        measured("hit_requests", count(row, "hit_requests"), "requests", HIT_PRICE_TABLE),
        measured("other_requests", count(row, "other_requests"), "requests", HIT_PRICE_TABLE),
    )
