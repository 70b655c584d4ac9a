"""Rules that prove that no pool pays: bounds before evidence."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.verdict import words
from kvtrace.audit.verdict.cases import Case, Decision
from kvtrace.audit.verdict.conditions import smaller_pool
from kvtrace.audit.verdict.growth import best_case_growth

_OF_THIS_SIZE: Final = ("A pool of this size", "it costs")


def no_prefill_is_worth_a_pool(case: Case) -> Decision | None:
    """Bounds before evidence: all prefill free is worth less than any pool, or than those weighed.

    What every pool costs proves it for all of them; the bill of the cheapest one that is weighed
    proves it for pools of its size.
    """
    bound = case.all_prefill
    if bound is None or not (case.is_long_enough and bound.is_peak):
        return None
    if case.shows_more_than(bound):
        return None
    least, cost = case.smallest_pool_cost, case.lowest_pool_cost
    if least is not None and bound.saving.high < least.low:
        return Decision(
            outcome="does_not_pay",
            headline=(
                "A pool does not pay at the load of this trace: even if it made all prefill free, "
                "it would save less than the smallest one costs"
            ),
            reasons=(words.bound_reason(bound, least, words.ANY_POOL), words.holds_for(case)),
            conditions=best_case_growth(case, bound, least),
            is_proof=True,
        )
    if cost is None or bound.saving.high >= cost.low:
        return None
    return Decision(
        outcome="does_not_pay",
        headline=(
            "A pool of this size does not pay at the load of this trace: even if it made all "
            "prefill free, it would save less than it costs"
        ),
        reasons=(words.bound_reason(bound, cost, words.weighed_pool(case)), words.holds_for(case)),
        conditions=(*smaller_pool(case, bound), *best_case_growth(case, bound, cost)),
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
    if case.shows_more_than(bound):
        return None
    least = case.smallest_pool_cost
    is_any = least is not None and bound.saving.high < least.low
    pool, costs = ("A pool", "the smallest one costs") if is_any else _OF_THIS_SIZE
    what = words.ANY_POOL if is_any else words.weighed_pool(case)
    cost = least if is_any and least is not None else cost
    return Decision(
        outcome="does_not_pay",
        headline=(
            f"{pool} does not pay: all the reuse that {case.rival_title} leaves is worth less "
            f"than {costs}"
        ),
        reasons=(words.bound_reason(bound, cost, what), *words.rival_reasons(case, None)),
        conditions=(
            *(() if is_any else smaller_pool(case, bound)),
            *best_case_growth(case, bound, cost),
        ),
        is_proof=True,
    )
