"""Rules that prove that no pool pays: bounds before evidence."""

from __future__ import annotations

from kvtrace.audit.verdict import words
from kvtrace.audit.verdict.cases import Case, Decision
from kvtrace.audit.verdict.growth import best_case_growth


def no_prefill_is_worth_a_pool(case: Case) -> Decision | None:
    """Bounds before evidence: all prefill free is worth less than the cheapest pool."""
    bound, cost = case.all_prefill, case.lowest_pool_cost
    if bound is None or cost is None or not (case.is_long_enough and bound.is_peak):
        return None
    if bound.saving.high >= cost.low:
        return None
    return Decision(
        outcome="does_not_pay",
        headline=(
            "A pool does not pay at the load of this trace: even if it made all prefill free, "
            "it would save less than it costs"
        ),
        reasons=(
            words.bound_reason(bound, cost),
            "This holds for any hit ratio and any network, since no cache can free more",
        ),
        conditions=best_case_growth(case, bound, cost),
        is_proof=True,
    )


def nothing_is_reusable(case: Case) -> Decision | None:
    """No block came back, in all the data."""
    if case.all_reusable_tokens != 0 or not case.is_long_enough:
        return None
    return Decision(
        outcome="does_not_pay",
        headline="A pool does not pay: no block of this trace is ever used again",
        reasons=(
            f"0 of {case.all_prompt_tokens or 0:,} prompt tokens are reusable in an unlimited "
            "cache",
        ),
        is_proof=True,
    )


def no_reuse_left_is_worth_a_pool(case: Case) -> Decision | None:
    """All reuse beyond what HBM and idle DRAM serve, moved for nothing, is worth too little."""
    bound, cost = case.all_reuse, case.lowest_pool_cost
    if bound is None or cost is None or bound.saving.high >= cost.low:
        return None
    if not (case.is_long_enough and bound.is_peak and case.is_history_known):
        return None
    return Decision(
        outcome="does_not_pay",
        headline=(
            f"A pool does not pay: all the reuse that {case.rival_title} leaves is worth less "
            "than the cheapest pool costs"
        ),
        reasons=(words.bound_reason(bound, cost), *words.rival_reasons(case, None)),
        conditions=best_case_growth(case, bound, cost),
        is_proof=True,
    )
