"""The circumstances of a case, read from queries, replays and the fleet search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.findings.limits import HALF_RATE
from kvtrace.audit.findings.pieces import piece_rates
from kvtrace.audit.fleet.binding import NOTHING, resource_words
from kvtrace.audit.fleet.record import Binding
from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.thresholds import DOMINATES
from kvtrace.audit.view import count, number, summary_of
from kvtrace.cost.deployment import Deployment
from kvtrace.replay.result import ReplayResult
from kvtrace.units import format_bytes

_LARGEST: Final = "sharing/largest_conversation"
_COMPUTE: Final = frozenset({"prefill", NOTHING})


def dominant_conversation(queries: Mapping[str, ResultOfQuery]) -> str | None:
    """Where one conversation of several requests brings half of the reuse or more."""
    row = summary_of(queries, _LARGEST)
    share, tokens = number(row, "largest_share"), count(row, "largest_reusable_tokens")
    if share is None or share < DOMINATES.value:
        return None
    return (
        f"one of {count(row, 'conversations') or 0:,} conversations brings {100 * share:.0f} % of "
        f"the reuse ({tokens or 0:,} of {count(row, 'reusable_tokens') or 0:,} tokens)"
    )


def binding_today(binding: Binding | None) -> str | None:
    """Where another resource than prefill limits the fleet of today."""
    if binding is None or binding.binds in _COMPUTE:
        return None
    return (
        f"{resource_words(binding.binds)} limits today's fleet, not prefill ({binding.why}): a hit "
        "frees prefill only"
    )


def small_pieces(deployment: Deployment, results: Sequence[ReplayResult]) -> str | None:
    """Where a link that options cross runs at half of its rate or less for the size of pieces."""
    slow = [pair for pair in piece_rates(deployment, results) if pair[1] <= HALF_RATE.value]
    if not slow:
        return None
    link, share = min(slow, key=lambda pair: (pair[1], pair[0].link))
    return (
        f"KV goes in pieces of {format_bytes(deployment.hardware.chunk_bytes.value)}, with which "
        f"{link.link} reaches {100 * share:.0f} % of its rate; half is reached from "
        f"{format_bytes(link.op_s.value * link.max_bytes_per_s.value)} on"
    )
