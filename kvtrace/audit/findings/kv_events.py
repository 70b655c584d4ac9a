"""What KV events measure of a pool's worth: tokens that the fleet computed again."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, known_only, measured
from kvtrace.audit.findings.limits import RESTORED_SHARE
from kvtrace.audit.record import Level
from kvtrace.audit.thresholds import MIN_SPAN
from kvtrace.audit.view import Row, count, number, summary_of
from kvtrace.audit.words import counted, percent

RESTORED_TABLE: Final = "kv_events/restored_tokens"
_SUMMARY: Final = "kv_events/restored_summary"
_BROKEN: Final = frozenset({"kv_events_mixed_publishers"})
"""Notes of captures whose instances cannot be told apart."""
_PARTIAL: Final = frozenset(
    {
        "kv_events_lost",
        "kv_events_no_sequence",
        "kv_events_parents_unknown",
        "kv_events_without_tokens",
        "kv_events_medium_unknown",
    }
)
"""Notes of captures in which some recomputation is not seen."""


def restored_tokens(evidence: Evidence) -> Hit | None:
    """Computed tokens that the fleet had computed before, by where they were."""
    row = summary_of(evidence.queries, _SUMMARY)
    computed, restored = count(row, "computed_tokens"), count(row, "restored_tokens")
    share = number(row, "restored_ratio_tokens")
    if not computed:
        return None
    share, restored = share or 0.0, restored or 0
    return Hit(
        severity="warning" if share >= RESTORED_SHARE.value else "info",
        confidence=_confidence(row, evidence),
        message=_message(row, evidence, restored, computed),
        evidence=known_only(
            measured("computed_tokens", computed, "tokens", _SUMMARY),
            measured("restored_tokens", restored, "tokens", _SUMMARY),
            measured("restored_ratio_tokens", share, "ratio", _SUMMARY),
            *(
                measured(name, count(row, name), "tokens", _SUMMARY)
                for name in (
                    "other_instance_holds_tokens",
                    "same_instance_removed_tokens",
                    "other_instance_removed_tokens",
                    "loaded_tokens",
                )
            ),
            measured("span_s", number(row, "span_s"), "s", _SUMMARY),
        ),
    )


def _message(row: Row, evidence: Evidence, restored: int, computed: int) -> str:
    instances = counted(count(row, "instances") or 0, "instance")
    if not restored:
        return (
            f"KV events of {instances}: none of {computed:,} computed tokens had been computed "
            "before in this window, so that a pool could have restored none of them"
        )
    places = (
        ("other_instance_holds_tokens", "while another instance held them (routing would do)"),
        (
            "same_instance_removed_tokens",
            "after the same instance dropped them (more capacity)",
        ),
        ("other_instance_removed_tokens", "after another instance dropped them"),
    )
    parts = [f"{n:,} {where}" for name, where in places if (n := count(row, name))]
    return (
        f"KV events of {instances}: {restored:,} of {computed:,} computed tokens "
        f"({percent(restored / computed)}) were computed again although the fleet had computed "
        f"them before: {', '.join(parts)}. A pool of unlimited size and zero cost could have "
        "restored these in this window, and no others that the events know of. "
        f"{_caveat(evidence)}"
    )


def _caveat(evidence: Evidence) -> str:
    """Stores in HBM that were no computation look the same."""
    if _has_loads(evidence):
        return (
            "But these logs also show KV loaded into HBM, and engines announce loaded blocks as "
            "stored: part of these tokens was not computed"
        )
    return (
        "Blocks that a KV connector loads, or that a prefill instance hands over, are announced in "
        "the same way: where one runs, part of these tokens was not computed"
    )


def _has_loads(evidence: Evidence) -> bool:
    """Whether something below HBM, or another instance, filled HBM while the events were made."""
    data = evidence.data
    is_tiered = any(tokens for tier, tokens in data.cached_tiers.items() if tier != "device")
    return is_tiered or data.transfers > 0


def _confidence(row: Row, evidence: Evidence) -> Level:
    """High for a whole capture of an hour and more, with tokens."""
    codes = {note.code for note in evidence.data.notes}
    codes |= {note.code for file in evidence.data.files for note in file.notes}
    span_s = number(row, "span_s")
    if codes & _BROKEN or _has_loads(evidence):
        return "low"
    if codes & _PARTIAL or count(row, "blocks_without_tokens"):
        return "medium"
    return "high" if span_s is not None and span_s >= MIN_SPAN.value else "medium"
