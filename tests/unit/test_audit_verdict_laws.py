"""Laws of the verdict over random cases: nothing pays without every premise."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from kvtrace.audit.thresholds import MIN_REQUESTS, MIN_SPAN
from kvtrace.audit.verdict.cases import Case
from kvtrace.audit.verdict.proofs import (
    no_prefill_is_worth_a_pool,
    no_reuse_left_is_worth_a_pool,
)
from kvtrace.audit.verdict.rules import RULES, decide
from tests.unit.verdict_draws import cases

OUTCOMES = {"pays": 3, "pays_only_if": 2, "cannot_tell": 1, "does_not_pay": 0}


@given(cases())
@settings(max_examples=1_000)
def test_every_case_has_an_answer_with_reasons(case: Case) -> None:
    verdict = decide(case, [])
    assert verdict.headline
    assert verdict.reasons
    assert 1 <= len(verdict.confidence_reasons) <= 2
    if verdict.outcome == "pays_only_if":
        assert verdict.conditions
    if verdict.outcome == "cannot_tell":
        assert verdict.next_measurement is not None


@given(cases())
@settings(max_examples=1_000)
def test_pays_means_that_every_premise_holds(case: Case) -> None:
    verdict = decide(case, [])
    if verdict.outcome != "pays":
        return
    assert case.grade == "A"
    assert case.requests >= MIN_REQUESTS.value
    assert case.span_s is not None
    assert case.span_s >= MIN_SPAN.value
    assert not case.unconfirmed
    assert not case.unreplayed_rivals
    assert case.contradicted is None
    assert not case.is_chance_low
    assert case.chance is not None or verdict.confidence == "low"
    cost = case.lowest_pool_cost
    if case.all_prefill is not None and case.all_prefill.is_peak and cost is not None:
        assert case.all_prefill.saving.high >= cost.low
    named = [pool for pool in case.pools if pool.option_id == verdict.option]
    assert any(pool.keeps_slo and pool.saving.low > pool.cost.high for pool in named)
    assert any(pool.is_saving_replayed and pool.instances_saved.low >= 1 for pool in named)


@given(cases())
@settings(max_examples=1_000)
def test_a_proof_rests_on_enough_data_and_on_a_bound(case: Case) -> None:
    answers = ((rule, rule(case)) for rule in RULES)
    rule, decision = next((rule, answer) for rule, answer in answers if answer is not None)
    if not decision.is_proof:
        return
    assert case.requests >= MIN_REQUESTS.value
    assert case.span_s is not None
    assert case.span_s >= MIN_SPAN.value
    if rule is no_prefill_is_worth_a_pool:
        assert case.all_prefill is not None
        assert case.all_prefill.is_peak
    if "of this size" not in decision.headline and rule in (
        no_prefill_is_worth_a_pool,
        no_reuse_left_is_worth_a_pool,
    ):
        # Said of every pool, so that it is below what every pool costs.
        bound = case.all_prefill if rule is no_prefill_is_worth_a_pool else case.all_reuse
        assert bound is not None
        assert case.smallest_pool_cost is not None
        assert bound.saving.high < case.smallest_pool_cost.low
        assert not case.shows_more_than(bound)
    if rule is no_reuse_left_is_worth_a_pool:
        assert case.all_reuse is not None
        assert case.all_reuse.is_peak
        assert case.is_history_known


@given(cases())
@settings(max_examples=1_000)
def test_unconfirmed_settings_never_raise_the_outcome_or_the_confidence(case: Case) -> None:
    sure = decide(replace(case, unconfirmed=()), [])
    unsure = decide(replace(case, unconfirmed=("hardware",)), [])
    assert OUTCOMES[unsure.outcome] <= OUTCOMES[sure.outcome]
    assert unsure.confidence == "low"
