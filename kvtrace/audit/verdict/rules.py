"""The verdict by rule: code that reads like policy.

Rules are asked in order; the first that has an answer gives it. A false `pays` is the worst bug:
`pays` needs the low value (whole instances, by replay) above the high cost, today's TTFT kept,
data that cover a busy day, hits that no cheaper option serves, and every decisive assumption
confirmed. Each weaker case ends in
`pays_only_if`, with the conditions as numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kvtrace.audit.findings.sampling import LogGap
from kvtrace.audit.record import Quantity, Verdict
from kvtrace.audit.verdict import words
from kvtrace.audit.verdict.cases import Case, Decision, PoolCase
from kvtrace.audit.verdict.conditions import (
    lead,
    money_conditions,
    slo_conditions,
    standing_conditions,
)
from kvtrace.audit.verdict.confidence import judge_confidence
from kvtrace.audit.verdict.evidence import (
    cannot_be_replayed,
    nothing_carries_the_load,
    nothing_was_asked,
    reuse_is_unknown,
    too_short_to_tell,
)
from kvtrace.audit.verdict.objections import (
    costs_more_than_it_saves,
    pool_adds_nothing,
    prefill_does_not_bind,
    slower_on_every_path,
    tail_is_longer_with_every_pool,
)
from kvtrace.audit.verdict.proofs import (
    no_prefill_is_worth_a_pool,
    no_reuse_left_is_worth_a_pool,
    nothing_is_reusable,
)

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
        reasons=[
            *decision.reasons,
            *(one for one in (_net_of(pool), _accuracy(pool), case.today, case.latency) if one),
        ],
        conditions=list(decision.conditions),
        carrying_numbers=carrying_numbers,
        next_measurement=decision.next_measurement,
        confidence_reasons=list(why),
        option=None if pool is None else pool.option_id,
        rival=case.rival_of(pool),
    )


def _net_of(pool: PoolCase | None) -> str:
    """The rival that costs something and that the savings and the cost are beyond; empty: none."""
    if pool is None or pool.net_of is None:
        return ""
    return (
        f"{pool.net_of} costs something, too, and leaves {pool.title} least: what the pool saves "
        "is beyond what that one saves, and its cost is what it takes more than that one "
        "(modelled)"
    )


def _accuracy(pool: PoolCase | None) -> str:
    """What nobody evaluated of the named pool; empty: KV has as many bits as today."""
    return f"{pool.title}: {words.ACCURACY}" if pool is not None and pool.is_quantised else ""


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


def pays(case: Case) -> Decision | None:
    """The low value beats the high cost, nothing gets slower, and nothing decisive is assumed.

    The low value is whole instances that replays without them did not miss. Where nothing without a
    pool carries the load there is no TTFT of today to keep, so it takes the user's word. A window
    shorter than a day does not show the hour that sizes the fleet. Where what is open was sampled,
    the pool pays in nearly all samples. KV of fewer bits may change answers: it pays only if not.
    """
    is_open = bool(case.unconfirmed or case.unreplayed_rivals or case.narrow_rivals or case.log_gap)
    is_open = is_open or case.is_chance_low or case.around.dominant is not None
    is_open = is_open or case.contradicted is not None
    is_settled = case.covers_a_day and not (is_open or case.is_pool_needed)
    best = case.best_pool
    if best is not None and best.is_quantised:
        return None
    if best is None or not (case.is_long_enough and is_settled and best.is_paying):
        return None
    if not case.adds_hits(best):
        return None
    slo, kept = words.slo_is_kept(case)
    return Decision(
        outcome="pays",
        headline=f"{best.title} pays: it saves more than it costs, and {slo}",
        reasons=(*words.weigh_reasons(case, best), f"{kept} (modelled): {best.slowdown}"),
    )


def pays_only_if(case: Case) -> Decision:
    """What must hold, as numbers."""
    best = case.best_pool
    assert best is not None, "cannot_be_replayed answers first"  # noqa: S101
    conditions = (*money_conditions(case, best), *slo_conditions(case, best))
    return Decision(
        outcome="pays_only_if",
        headline=f"{best.title} pays only if {lead(case, best)}",
        reasons=words.weigh_reasons(case, best),
        conditions=(*conditions, *standing_conditions(case)),
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
