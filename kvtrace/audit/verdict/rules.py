"""The verdict by rule: code that reads like policy.

Rules are asked in order; the first that has an answer gives it. A false `pays` is the worst bug:
`pays` needs the low value (whole instances, by replay) above the high cost, today's TTFT kept,
data that cover a busy day, and every decisive assumption confirmed. Each weaker case ends in
`pays_only_if`, with the conditions as numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kvtrace.audit.record import Quantity, Verdict
from kvtrace.audit.thresholds import LITTLE, MIN_REQUESTS, NEARLY_ALL
from kvtrace.audit.verdict import words
from kvtrace.audit.verdict.cases import Case, Decision, LogGap
from kvtrace.audit.verdict.confidence import judge_confidence

Rule = Callable[[Case], Decision | None]


def decide(case: Case, carrying_numbers: list[Quantity]) -> Verdict:
    """The verdict of the first rule that has an answer, with the confidence that it deserves."""
    decision = next(answer for rule in RULES if (answer := rule(case)) is not None)
    if case.window_doubt and decision.outcome == "does_not_pay" and not decision.is_proof:
        decision = _doubted(case.window_doubt, decision)
    if case.log_gap is not None:
        decision = _of_a_part(case, case.log_gap, decision)
    confidence, why = judge_confidence(case, decision)
    pool = case.best_pool
    return Verdict(
        outcome=decision.outcome,
        confidence=confidence,
        headline=decision.headline,
        reasons=[*decision.reasons, *(one for one in (case.today, case.latency) if one)],
        conditions=list(decision.conditions),
        carrying_numbers=carrying_numbers,
        next_measurement=decision.next_measurement,
        confidence_reasons=list(why),
        option=None if pool is None else pool.option_id,
        rival=case.rival_title,
    )


def _doubted(doubt: str, decision: Decision) -> Decision:
    """What replays of an hour with little reuse say against a pool does not hold for the log."""
    return Decision(
        outcome="cannot_tell",
        headline=f"Cannot tell from the busiest hour: {doubt}",
        reasons=(f"{doubt[0].upper()}{doubt[1:]}", *decision.reasons),
        next_measurement=words.whole_log(),
    )


def _of_a_part(case: Case, gap: LogGap, decision: Decision) -> Decision:
    """A log that misses requests proves nothing against a pool: neither reuse nor load is whole.

    But where whole conversations show no reuse at all, more of them will not either.
    """
    is_without_reuse = case.all_reusable_tokens == 0 and not gap.hides_reuse
    if decision.outcome == "does_not_pay" and not (decision.is_proof and is_without_reuse):
        return Decision(
            outcome="cannot_tell",
            headline=f"Cannot tell from this log: {gap.what}",
            reasons=(gap.evidence, *decision.reasons),
            next_measurement=gap.measurement,
        )
    is_reuse_known = case.grade == "A" and case.reusable_tokens is not None
    return replace(
        decision,
        reasons=(*decision.reasons, gap.evidence),
        next_measurement=gap.measurement
        if is_reuse_known
        else decision.next_measurement or gap.measurement,
    )


# --- rules, in the order in which they are asked ------------------------------------------------


def nothing_was_asked(case: Case) -> Decision | None:
    """Requests without a single prompt token say nothing of prefill."""
    if case.all_prompt_tokens != 0:
        return None
    return Decision(
        outcome="cannot_tell",
        headline="Cannot tell from this data: its prompts hold no tokens",
        reasons=(f"{words.counted(case.requests, 'request')} with 0 prompt tokens in all",),
        next_measurement=case.next_measurement,
    )


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
        conditions=words.best_case_growth(case, bound, cost),
        is_proof=True,
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
        reasons=(words.bound_reason(bound, cost), *words.rival_reasons(case)),
        conditions=words.best_case_growth(case, bound, cost),
        is_proof=True,
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


def pool_adds_nothing(case: Case) -> Decision | None:
    """A cheaper rival serves the same hits; or hardly any are left; or the pool is too small."""
    most = max(pool.extra_hit_tokens for pool in case.pools)
    prompt = case.prompt_tokens or 0
    if not case.is_long_enough or case.is_pool_needed or case.reusable_tokens is None:
        return None
    if not prompt or most / prompt >= LITTLE.value or not case.is_history_known:
        return None
    adds = (
        f"The best pool adds {max(most, 0):,} hit tokens to {case.rival_title}, "
        f"{100 * max(most / prompt, 0.0):.2f} % of {prompt:,} prompt tokens "
        f"(modelled; limit {100 * LITTLE.value:.0f} %)"
    )
    left = case.reusable_tokens - (case.rival_hit_tokens or 0)
    if (case.served_share or 0.0) >= NEARLY_ALL.value:
        where = "HBM" if words.ends_at_hbm(case) else case.rival_title
        headline = f"A pool does not pay: {where} already serves the hits that it would serve"
    elif left / prompt < LITTLE.value:
        headline = f"A pool does not pay: hardly any reuse is left beyond {case.rival_title}"
    else:
        return _pool_is_too_small(case, adds)
    return Decision(
        outcome="does_not_pay",
        headline=headline,
        reasons=(adds, *words.rival_reasons(case)),
    )


def _pool_is_too_small(case: Case, adds: str) -> Decision:
    """There is reuse to serve, and this pool does not hold it."""
    size = case.pool_capacity or "the pool does not hold the reuse that is left"
    return Decision(
        outcome="pays_only_if",
        headline="A pool pays only if it holds more: this one adds no hits to those of "
        f"{case.rival_title}",
        reasons=(adds, f"{size[0].upper()}{size[1:]}", *words.rival_reasons(case)),
        conditions=(
            f"it serves at least {100 * LITTLE.value:.0f} % of the prompt tokens beyond "
            f"{case.rival_title}, and value then meets cost: {size}",
            *words.standing_conditions(case),
        ),
    )


def prefill_does_not_bind(case: Case) -> Decision | None:
    """A pool frees prefill only; where that saves no whole instance it saves no money.

    Unless a load within the growth limit changes that, without making anyone wait longer.
    """
    most = case.best_pool
    if most is None or not case.is_long_enough:
        return None
    if case.is_pool_needed or any(p.instances_saved.high >= 1 for p in case.pools):
        return None
    growth = words.growth_to_pay(case, most)
    reasons = (
        words.less_than_an_instance(case, most),
        *words.no_gpu_is_saved(case),
        *words.fleet_reasons(case, most),
    )
    whole = words.whole_gpus(case)
    if most.keeps_slo and growth is not None and not growth.is_another_fleet:
        return Decision(
            outcome="pays_only_if",
            headline=f"{most.title} pays only if the load grows to {growth.times:.1f} times: now "
            f"the prefill that it frees would not remove {whole}",
            reasons=(*reasons, *words.rival_reasons(case)),
            conditions=(
                f"the load is at least {growth.times:.1f} times that of this trace, at the same "
                f"reuse and pool size: {growth.division}",
                *words.standing_conditions(case),
            ),
        )
    return Decision(
        outcome="does_not_pay",
        headline="A pool does not pay at this load: the prefill that it frees would not remove "
        f"{whole}",
        reasons=reasons,
        conditions=(*words.growth_condition(case, most), *words.cold_condition(case)),
    )


def costs_more_than_it_saves(case: Case) -> Decision | None:
    """Every pool costs more at its lowest price than it saves at its highest."""
    if not case.is_long_enough or any(p.saving.high >= p.cost.low for p in case.pools):
        return None
    best = case.best_pool
    if best is None:
        return None
    return Decision(
        outcome="does_not_pay",
        headline="A pool does not pay: each option costs more than it saves",
        reasons=words.weigh_reasons(case, best),
        conditions=(*words.growth_condition(case, best), *words.cold_condition(case)),
    )


def slower_on_every_path(case: Case) -> Decision | None:
    """Most loaded hits arrive later than recomputing them, on all paths."""
    if any(pool.is_faster_than_recompute for pool in case.pools):
        return None
    bandwidth = words.bandwidth_conditions(case.pools)
    reasons = (
        "On every path that was replayed most loaded hits arrive later than recomputing them "
        "(modelled)",
        *(words.net_negative_reason(pool) for pool in case.pools),
        *words.rival_reasons(case),
    )
    if bandwidth and any(pool.saving.high >= pool.cost.low for pool in case.pools):
        return Decision(
            outcome="pays_only_if",
            headline="A pool pays only if its path gets faster: now its hits cost more time "
            "than they save",
            reasons=reasons,
            conditions=(*bandwidth, *words.standing_conditions(case)),
        )
    if not case.is_long_enough:
        return None
    return Decision(
        outcome="does_not_pay",
        headline="A pool does not pay: on every path a hit is slower than recomputing",
        reasons=reasons,
        conditions=bandwidth,
    )


def tail_is_longer_with_every_pool(case: Case) -> Decision | None:
    """Its hits are fast, but some class of prompts waits longer, or the load is not carried."""
    best = case.best_pool
    if best is None or any(pool.keeps_slo for pool in case.pools):
        return None
    if not case.is_long_enough and best.saving.high < best.cost.low:
        return None
    tail = best.worst_excess or best.slowdown
    if not best.is_feasible:
        headline = "A pool pays only if it carries the load: on this fleet none of them does"
    elif not best.is_faster_than_recompute:
        headline = f"{best.title} pays only if its hits get faster than recomputing them"
    else:
        headline = f"{best.title} pays only if the tail gets no longer: {tail}"
    return Decision(
        outcome="pays_only_if",
        headline=headline,
        reasons=(*words.weigh_reasons(case, best), words.net_negative_reason(best)),
        conditions=(
            *words.slo_conditions(case, best),
            *words.money_conditions(case, best),
            *words.standing_conditions(case),
        ),
    )


def too_short_to_tell(case: Case) -> Decision | None:
    """A short window shows too little reuse to rule a pool out, and too few requests for a tail."""
    best = case.best_pool
    has_tail = case.requests >= MIN_REQUESTS.value
    if case.is_long_enough or best is None or (has_tail and best.saving.high >= best.cost.low):
        return None
    missing = "the window is too short to show the reuse"
    return Decision(
        outcome="cannot_tell",
        headline=f"Cannot tell from this data: {missing if has_tail else 'too few requests'}",
        reasons=(words.window_text(case), words.money_reason(case, best)),
        next_measurement=case.next_measurement,
    )


def pays(case: Case) -> Decision | None:
    """The low value beats the high cost, nothing gets slower, and nothing decisive is assumed.

    The low value is whole instances that replays without them did not miss. Where nothing without a
    pool carries the load there is no TTFT of today to keep, so it takes the user's word. A window
    shorter than a day does not show the hour that sizes the fleet.
    """
    is_open = bool(case.unconfirmed or case.unreplayed_rivals or case.log_gap)
    is_settled = case.covers_a_day and not (is_open or case.is_pool_needed)
    best = case.best_pool
    if best is None or not (case.is_long_enough and is_settled and best.is_paying):
        return None
    return Decision(
        outcome="pays",
        headline=f"{best.title} pays: it saves more than it costs, and TTFT is no worse",
        reasons=(
            *words.weigh_reasons(case, best),
            f"TTFT is no worse than today's (modelled): {best.slowdown}",
        ),
    )


def pays_only_if(case: Case) -> Decision:
    """What must hold, as numbers."""
    best = case.best_pool
    assert best is not None, "cannot_be_replayed answers first"  # noqa: S101
    conditions = (*words.money_conditions(case, best), *words.slo_conditions(case, best))
    return Decision(
        outcome="pays_only_if",
        headline=f"{best.title} pays only if {words.lead(case, best)}",
        reasons=words.weigh_reasons(case, best),
        conditions=(*conditions, *words.standing_conditions(case)),
        next_measurement=None if case.is_long_enough else case.next_measurement,
    )


RULES: Final[tuple[Rule, ...]] = (
    nothing_was_asked,
    no_prefill_is_worth_a_pool,
    reuse_is_unknown,
    nothing_is_reusable,
    no_reuse_left_is_worth_a_pool,
    cannot_be_replayed,
    nothing_carries_the_load,
    pool_adds_nothing,
    prefill_does_not_bind,
    costs_more_than_it_saves,
    slower_on_every_path,
    tail_is_longer_with_every_pool,
    too_short_to_tell,
    pays,
    pays_only_if,
)
