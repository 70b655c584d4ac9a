"""Rules on what the data and the replays can carry: where they carry nothing, nobody can tell."""

from __future__ import annotations

from kvtrace.audit.verdict import words
from kvtrace.audit.verdict.cases import Case, Decision
from kvtrace.audit.words import counted


def nothing_was_asked(case: Case) -> Decision | None:
    """Requests without a single prompt token say nothing of prefill."""
    if case.all_prompt_tokens != 0:
        return None
    return Decision(
        outcome="cannot_tell",
        headline="Cannot tell from this data: its prompts hold no tokens",
        reasons=(f"{counted(case.requests, 'request')} with 0 prompt tokens in all",),
        next_measurement=case.next_measurement,
    )


def reuse_is_unknown(case: Case) -> Decision | None:
    """Without block identity no capacity can be simulated: the bound did not settle it."""
    if case.grade == "A" and case.reusable_tokens is not None:
        return None
    reasons = [words.WHY_UNKNOWN[case.grade]]
    if case.all_prefill is not None and case.lowest_pool_cost is not None:
        reasons.append(words.open_bound(case, case.all_prefill, case.lowest_pool_cost))
    elif case.all_prefill is None:
        reasons.append(
            "The best case cannot be bounded either: the prefill load or its time span is unknown"
        )
    return Decision(
        outcome="cannot_tell",
        headline="Cannot tell from this data: it does not show how much of the prefill is reusable",
        reasons=tuple(reasons),
        next_measurement=case.next_measurement,
    )


def cannot_be_replayed(case: Case) -> Decision | None:
    """Reuse is known but no pooled option was replayed: there is no clock, or no cost."""
    if case.pools:
        return None
    return Decision(
        outcome="cannot_tell",
        headline="Cannot tell from this data: the options could not be replayed",
        reasons=(
            "No pooled option was replayed; a replay needs arrival times, prompt lengths and "
            "block identity of the same requests",
        ),
        next_measurement=case.next_measurement,
    )


def nothing_carries_the_load(case: Case) -> Decision | None:
    """On the stated fleet every option is overloaded: the replays then say nothing of a pool."""
    if not case.is_overloaded:
        return None
    return Decision(
        outcome="cannot_tell",
        headline="Cannot tell at this fleet: no option, with or without a pool, carries the load",
        reasons=(case.load or "All options are overloaded (modelled)",),
        next_measurement=words.larger_fleet(),
    )


def too_short_to_tell(case: Case) -> Decision | None:
    """A short window shows too little reuse to rule a pool out, and too few requests for a tail."""
    best = case.best_pool
    if case.is_long_enough or best is None or (case.has_tail and best.saving.high >= best.cost.low):
        return None
    missing = "the window is too short to show the reuse"
    return Decision(
        outcome="cannot_tell",
        headline=f"Cannot tell from this data: {missing if case.has_tail else 'too few requests'}",
        reasons=(words.window_text(case), words.money_reason(case, best)),
        next_measurement=case.next_measurement,
    )
