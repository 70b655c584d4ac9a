"""Laws of the verdict over random cases: nothing pays without every premise."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.audit.cases import Bound, Case, PoolCase
from kvtrace.audit.ranges import Range
from kvtrace.audit.record import NextMeasurement
from kvtrace.audit.thresholds import MIN_REQUESTS, MIN_SPAN
from kvtrace.audit.verdict import (
    RULES,
    decide,
    no_prefill_is_worth_a_pool,
    no_reuse_left_is_worth_a_pool,
)
from kvtrace.schema.manifest import Grade

NUMBERS = st.sampled_from([0.0, 0.3, 0.99, 1.0, 2.5, 900.0, 20_000.0, 70_000.0])
OUTCOMES = {"pays": 3, "pays_only_if": 2, "cannot_tell": 1, "does_not_pay": 0}


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    return Range(*sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS))))


@st.composite
def bounds(draw: st.DrawFn) -> Bound:
    return Bound(
        instances=draw(ranges()), saving=draw(ranges()), what="free", is_peak=draw(st.booleans())
    )


@st.composite
def pools(draw: st.DrawFn) -> PoolCase:
    return PoolCase(
        option_id=draw(st.sampled_from(["pool_a", "pool_b"])),
        title="a pool",
        extra_hit_tokens=draw(st.sampled_from([-5, 0, 10, 50_000])),
        saving=draw(ranges()),
        unrounded_saving_usd=draw(NUMBERS),
        cost=draw(ranges()),
        instances_saved=draw(ranges()),
        is_no_slower=draw(st.booleans()),
        slowdown="p99 1 s against 2 s",
        tail_s=draw(NUMBERS),
        net_negative_share=draw(st.sampled_from([None, 0.0, 0.49, 0.5, 1.0])),
        path_bytes_per_s=draw(st.sampled_from([None, 0.0, 1e9])),
        break_even_bytes_per_s=draw(st.sampled_from([None, 1e8, 1e10])),
        freed=draw(st.none() | ranges()),
        is_saving_replayed=draw(st.booleans()),
        worst_excess=draw(st.sampled_from(["", "TTFT p90 is longer by 3 ms"])),
        is_feasible=draw(st.booleans()),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    grades: list[Grade] = ["A", "A", "A", "B", "C", "L"]
    grade = draw(st.sampled_from(grades))
    return Case(
        grade=grade,
        requests=draw(st.sampled_from([0, 999, 1000, 50_000])),
        span_s=draw(st.sampled_from([None, 10.0, 3_299.0, 3_300.0, 90_000.0])),
        prompt_tokens=draw(st.sampled_from([None, 0, 100_000])),
        reusable_tokens=draw(st.sampled_from([None, 0, 60_000])) if grade == "A" else None,
        all_prefill=draw(st.none() | bounds()),
        all_reuse=draw(st.none() | bounds()),
        lowest_pool_cost=draw(st.none() | ranges()),
        rival_title=draw(st.sampled_from([None, "Idle DRAM"])),
        rival_hit_tokens=draw(st.sampled_from([None, 0, 60_000])),
        hbm_hit_tokens=draw(st.sampled_from([None, 0, 60_000])),
        prefill_utilisation=draw(st.sampled_from([None, 0.0, 0.49, 0.5, 1.0])),
        pools=tuple(draw(st.lists(pools(), max_size=3))),
        unconfirmed=draw(st.sampled_from([(), ("llm",)])),
        next_measurement=NextMeasurement(question="q", flag="--f", hours=1, settles="s"),
        gpu_usd_per_hour=draw(st.none() | st.just(Range(2, 3, 5))),
        unreplayed_rivals=draw(st.sampled_from([(), ("routing",)])),
        trace_reusable_tokens=draw(st.sampled_from([None, 0, 80_000])),
        is_history_known=draw(st.booleans()),
        is_cold=draw(st.booleans()),
        is_overloaded=draw(st.booleans()),
        is_pool_needed=draw(st.booleans()),
        is_fewer_kept=draw(st.booleans()),
    )


@given(cases())
@settings(max_examples=400)
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
@settings(max_examples=400)
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
    named = [pool for pool in case.pools if pool.option_id == verdict.option]
    assert any(pool.keeps_slo and pool.saving.low > pool.cost.high for pool in named)
    assert any(pool.is_saving_replayed and pool.instances_saved.low >= 1 for pool in named)


@given(cases())
@settings(max_examples=400)
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
    if rule is no_reuse_left_is_worth_a_pool:
        assert case.all_reuse is not None
        assert case.all_reuse.is_peak
        assert case.is_history_known


@given(cases())
def test_unconfirmed_settings_never_raise_the_outcome_or_the_confidence(case: Case) -> None:
    sure = decide(replace(case, unconfirmed=()), [])
    unsure = decide(replace(case, unconfirmed=("hardware",)), [])
    assert OUTCOMES[unsure.outcome] <= OUTCOMES[sure.outcome]
    assert unsure.confidence == "low"
