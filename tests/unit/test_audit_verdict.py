"""The verdict as a table of cases. A false `pays` is the worst bug."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.audit.record import NextMeasurement, Outcome, Verdict
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound, Case, Chance, PoolCase, choose_pool
from kvtrace.audit.verdict.growth import growth_to_pay
from kvtrace.audit.verdict.rules import decide

MEASUREMENT = NextMeasurement(question="how much?", flag="--log", hours=2, settles="reuse")
POOL = PoolCase(
    option_id="pool_dram_rdma_direct",
    title="Pool over RDMA",
    extra_hit_tokens=30_000_000,
    saving=Range(40_000, 60_000, 90_000),
    unrounded_saving_usd=65_000,
    cost=Range(10_000, 15_000, 20_000),
    instances_saved=Range(2, 2, 4.8),
    freed=Range(2.4, 3.4, 4.8),
    is_saving_replayed=True,
    how_saved="Pool over RDMA keeps it with 6; Idle DRAM needs 8 (replayed)",
    is_no_slower=True,
    slowdown="p90 0.8 s against 1.1 s",
    tail_s=2.0,
    net_negative_share=0.01,
    path_bytes_per_s=100e9,
    break_even_bytes_per_s=20e9,
)
PAYS = Case(
    grade="A",
    requests=50_000,
    span_s=90_000.0,
    prompt_tokens=100_000_000,
    reusable_tokens=60_000_000,
    all_prefill=Bound(
        instances=Range(6, 8, 12), saving=Range(90_000, 140_000, 260_000), what="all prefill free"
    ),
    all_reuse=Bound(
        instances=Range(3, 4, 6), saving=Range(50_000, 70_000, 130_000), what="all reuse free"
    ),
    lowest_pool_cost=Range(10_000, 15_000, 20_000),
    rival_title="Idle DRAM",
    rival_hit_tokens=20_000_000,
    hbm_hit_tokens=10_000_000,
    prefill_utilisation=0.8,
    pools=(POOL,),
    unconfirmed=(),
    next_measurement=MEASUREMENT,
    gpu_usd_per_hour=Range(2.0, 3.0, 5.0),
    chance=Chance(pays=0.97, samples=4_096),
)
CHEAP_BOUND = Bound(instances=Range(0.1, 0.15, 0.2), saving=Range(0, 0, 4_000), what="free")
UNKNOWN = replace(PAYS, reusable_tokens=None, all_reuse=None, pools=())


def pool(**changes: object) -> tuple[PoolCase, ...]:
    return (replace(POOL, **changes),)  # type: ignore[arg-type]


NOTHING_SHOWN = pool(
    instances_saved=Range(0, 0, 0.2), saving=Range(0, 0, 4_000), is_saving_replayed=False
)
SLOW = pool(
    is_no_slower=False,
    slowdown="p99 4 s against 2 s",
    net_negative_share=0.7,
    path_bytes_per_s=5e9,
    break_even_bytes_per_s=20e9,
)
TABLE: list[tuple[str, Case, Outcome, str]] = [
    ("pays", PAYS, "pays", "saves more than it costs"),
    ("no reuse", replace(PAYS, reusable_tokens=0), "does_not_pay", "ever used again"),
    (
        "all prefill is worth less than the cheapest pool",
        replace(PAYS, all_prefill=CHEAP_BOUND, pools=NOTHING_SHOWN),
        "does_not_pay",
        "A pool of this size does not pay at the load of this trace: even if it made all prefill",
    ),
    (
        "all prefill is worth less than what every pool costs, however small",
        replace(
            PAYS,
            all_prefill=CHEAP_BOUND,
            pools=NOTHING_SHOWN,
            smallest_pool_cost=Range(4_001, 5_000, 6_000),
        ),
        "does_not_pay",
        "it would save less than the smallest one costs",
    ),
    (
        "replays give back more than the bound allows: neither is believed",
        replace(PAYS, all_prefill=CHEAP_BOUND),
        "pays_only_if",
        "a fleet on fewer instances shows what replays do",
    ),
    (
        "reuse all in HBM",
        replace(
            PAYS,
            hbm_hit_tokens=59_000_000,
            rival_hit_tokens=59_000_000,
            pools=pool(extra_hit_tokens=500_000),
        ),
        "does_not_pay",
        "HBM already serves",
    ),
    (
        "beyond HBM but within idle DRAM",
        replace(PAYS, rival_hit_tokens=59_500_000, pools=pool(extra_hit_tokens=500_000)),
        "does_not_pay",
        "Idle DRAM already serves",
    ),
    (
        "a pool that is too small to add hits, where the rival serves a third of the reuse",
        replace(
            PAYS,
            pools=pool(extra_hit_tokens=-400_000),
            pool_capacity="a pool of 1.0 TiB is too small: one cache of 9.0 TiB would do",
        ),
        "pays_only_if",
        "only if it holds more",
    ),
    (
        "hardly any reuse is left, though the rival serves less than nearly all",
        replace(
            PAYS,
            reusable_tokens=3_000_000,
            rival_hit_tokens=1_500_000,
            pools=pool(extra_hit_tokens=1_000_000),
        ),
        "does_not_pay",
        "hardly any reuse is left beyond Idle DRAM",
    ),
    (
        "no reuse in the busiest hour, but in the rest of the data",
        replace(
            PAYS,
            reusable_tokens=0,
            trace_reusable_tokens=60_000_000,
            is_history_known=False,
            all_reuse=CHEAP_BOUND,
        ),
        "pays",
        "saves more than it costs",
    ),
    (
        "three hours whose load was raised to a stated peak",
        replace(PAYS, span_s=10_800.0, is_peak_stated=True, is_paid_by_the_hour=False),
        "pays",
        "saves more than it costs",
    ),
    (
        "a stated peak says nothing of the hours off it, which elastic GPUs are not paid for",
        replace(PAYS, span_s=10_800.0, is_peak_stated=True),
        "pays_only_if",
        "the stated peak factor sizes the fleet only",
    ),
    (
        "a free pool that gives nothing back under the contract of the GPUs",
        replace(PAYS, pools=pool(saving=Range(0, 0, 0), cost=Range(0, 500, 900))),
        "does_not_pay",
        "costs more than it saves",
    ),
    (
        "a cheap bound of a mean load proves nothing",
        replace(PAYS, all_prefill=replace(CHEAP_BOUND, is_peak=False)),
        "pays",
        "saves more than it costs",
    ),
    (
        "three hours of log do not show the busiest hour of a day",
        replace(PAYS, span_s=10_800.0),
        "pays_only_if",
        "only if the month is like this window: 3.0 h of log do not show",
    ),
    (
        "a cheap bound in a short window proves nothing",
        replace(PAYS, all_prefill=CHEAP_BOUND, requests=400),
        "cannot_tell",
        "too few requests",
    ),
    (
        "prompts without tokens",
        replace(PAYS, trace_prompt_tokens=0, prompt_tokens=0, all_prefill=CHEAP_BOUND),
        "cannot_tell",
        "its prompts hold no tokens",
    ),
    (
        "reuse that idle DRAM leaves is worth less than the cheapest pool",
        replace(PAYS, all_reuse=CHEAP_BOUND, pools=NOTHING_SHOWN),
        "does_not_pay",
        "all the reuse that Idle DRAM leaves",
    ),
    ("pooled reuse on a slow network", replace(PAYS, pools=SLOW), "pays_only_if", "path"),
    (
        "slow network, and too dear at any price",
        replace(PAYS, pools=tuple(replace(p, saving=Range(0, 0, 9_000)) for p in SLOW)),
        "does_not_pay",
        "costs more than it saves",
    ),
    (
        "slow path whose break-even is unknown",
        replace(PAYS, pools=tuple(replace(p, break_even_bytes_per_s=None) for p in SLOW)),
        "does_not_pay",
        "on every path a hit is slower than recomputing",
    ),
    (
        "fast hits, but one bucket waits longer",
        replace(
            PAYS,
            pools=pool(is_no_slower=False, worst_excess="TTFT p90 of short prompts is longer"),
        ),
        "pays_only_if",
        "only if the tail gets no longer: TTFT p90 of short prompts",
    ),
    (
        "one path is slow, another is fast but has a longer tail",
        replace(
            PAYS,
            pools=(
                replace(SLOW[0], option_id="pool_dram_tcp"),
                *pool(is_no_slower=False, slowdown="p90 2 s against 1 s"),
            ),
        ),
        "pays_only_if",
        "only if the tail gets no longer: p90 2 s against 1 s",
    ),
    (
        "no pool carries the load, HBM does",
        replace(PAYS, pools=pool(is_feasible=False, is_no_slower=False)),
        "pays_only_if",
        "only if it carries the load",
    ),
    (
        "nothing carries the load",
        replace(PAYS, is_overloaded=True, load="HBM only cannot carry this load"),
        "cannot_tell",
        "no option, with or without a pool, carries the load",
    ),
    (
        "only the pool carries the load, and adds few hits",
        replace(
            PAYS,
            is_pool_needed=True,
            load="HBM only cannot carry this load; Pool over RDMA can",
            prefill_utilisation=None,
            pools=pool(extra_hit_tokens=0, instances_saved=Range(1, 1, 1), freed=Range(0, 0, 0)),
        ),
        "pays_only_if",
        "only if its TTFT is good enough",
    ),
    (
        "prefill saved but not one instance",
        replace(
            PAYS,
            pools=pool(instances_saved=Range(0, 0, 0.7), freed=Range(0.3, 0.5, 0.7)),
            prefill_utilisation=0.1,
        ),
        "does_not_pay",
        "would not remove a whole GPU",
    ),
    (
        "not one instance, but little growth makes it one",
        replace(PAYS, pools=pool(instances_saved=Range(0, 0, 0.98), freed=Range(0.5, 0.7, 0.98))),
        "pays_only_if",
        "load grows to 1.4 times",
    ),
    (
        "not one instance, little growth would do, but hits are slow",
        replace(PAYS, pools=(replace(SLOW[0], instances_saved=Range(0.5, 0.7, 0.98)),)),
        "does_not_pay",
        "would not remove a whole GPU",
    ),
    (
        "prefill does not bind the fleet, and nobody replayed fewer instances",
        replace(
            PAYS,
            prefill_utilisation=0.2,
            pools=pool(
                saving=Range(0, 60_000, 90_000),
                instances_saved=Range(0, 3, 4),
                is_saving_replayed=False,
            ),
        ),
        "pays_only_if",
        "prefill limits the fleet",
    ),
    (
        "prefill does not bind the fleet, but a replay without an instance keeps the SLO",
        replace(PAYS, prefill_utilisation=0.2, is_fewer_kept=True),
        "pays",
        "saves more than it costs",
    ),
    (
        "prefill binds, but no replay shows a saved instance",
        replace(
            PAYS,
            pools=pool(saving=Range(0, 0, 90_000), instances_saved=Range(0, 0, 4.8)),
        ),
        "pays_only_if",
        "gives back a whole GPU: no replay shows that it does",
    ),
    ("lengths only, bound open", replace(UNKNOWN, grade="L"), "cannot_tell", "Cannot tell"),
    (
        "lengths only, best case below the cost",
        replace(UNKNOWN, grade="L", all_prefill=CHEAP_BOUND),
        "does_not_pay",
        "even if it made all prefill free",
    ),
    (
        "aggregates only",
        replace(UNKNOWN, grade="C", requests=0, span_s=None, all_prefill=None),
        "cannot_tell",
        "Cannot tell",
    ),
    ("observed hits only", replace(UNKNOWN, grade="B"), "cannot_tell", "Cannot tell"),
    ("window too short", replace(PAYS, span_s=600.0), "pays_only_if", "longer log"),
    ("too few requests", replace(PAYS, requests=400), "cannot_tell", "too few requests"),
    (
        "window too short and no sign of value",
        replace(PAYS, span_s=600.0, pools=pool(saving=Range(0, 0, 5_000))),
        "cannot_tell",
        "window is too short",
    ),
    ("defaults unconfirmed", replace(PAYS, unconfirmed=("hardware",)), "pays_only_if", "hardware"),
    (
        "intervals overlap",
        replace(PAYS, pools=pool(saving=Range(15_000, 60_000, 90_000))),
        "pays_only_if",
        "intervals overlap",
    ),
    (
        "low value equals high cost",
        replace(PAYS, pools=pool(saving=Range(20_000, 60_000, 90_000))),
        "pays_only_if",
        "intervals overlap",
    ),
    (
        "no clock, so nothing was replayed",
        replace(PAYS, span_s=None, all_prefill=None, all_reuse=None, pools=()),
        "cannot_tell",
        "could not be replayed",
    ),
]


@pytest.mark.parametrize(("name", "case", "outcome", "headline"), TABLE, ids=[r[0] for r in TABLE])
def test_verdict_table(name: str, case: Case, outcome: Outcome, headline: str) -> None:
    verdict = decide(case, [])
    assert (verdict.outcome, name) == (outcome, name)
    assert headline in verdict.headline
    assert verdict.reasons
    assert 1 <= len(verdict.confidence_reasons) <= 2


def test_a_stated_slo_is_not_called_that_of_today() -> None:
    verdict = decide(replace(PAYS, is_slo_stated=True), [])
    assert verdict.outcome == "pays"
    assert "and the stated SLO is kept" in verdict.headline
    assert not any("today" in reason for reason in verdict.reasons)
    assert "TTFT is no worse" in decide(PAYS, []).headline


@pytest.mark.parametrize(
    "spoiled",
    [
        replace(PAYS, grade="B", reusable_tokens=None),
        replace(PAYS, requests=999),
        replace(PAYS, span_s=3_299.0),
        replace(PAYS, span_s=None),
        replace(PAYS, pools=pool(is_saving_replayed=False)),
        replace(PAYS, pools=pool(instances_saved=Range(0, 2, 4.8))),
        replace(PAYS, pools=pool(is_feasible=False)),
        replace(PAYS, unreplayed_rivals=("routing does not serve the same hits",)),
        replace(PAYS, unconfirmed=("fleet",)),
        replace(PAYS, pools=pool(is_no_slower=False)),
        replace(PAYS, pools=pool(net_negative_share=0.5)),
        replace(PAYS, pools=pool(cost=Range(10_000, 15_000, 41_000))),
        replace(PAYS, pools=()),
    ],
)
def test_one_missing_premise_is_enough_against_pays(spoiled: Case) -> None:
    assert decide(PAYS, []).outcome == "pays"
    assert decide(spoiled, []).outcome != "pays"


def test_pays_speaks_of_the_pool_that_pays_even_if_another_has_the_larger_mean() -> None:
    gamble = replace(
        POOL, option_id="pool_dram_tcp", title="Pool over TCP", saving=Range(0, 99_000, 120_000)
    )
    verdict = decide(replace(PAYS, pools=(gamble, POOL)), [])
    assert (verdict.outcome, verdict.option) == ("pays", "pool_dram_rdma_direct")


def test_break_even_conditions_are_numbers() -> None:
    # cost 15 000 against 10 000 saved: a factor of 1.5; $3.00 becomes $4.50, 30 % becomes 45 %.
    poor = pool(
        saving=Range(0, 9_000, 30_000), unrounded_saving_usd=10_000, is_saving_replayed=False
    )
    verdict = decide(replace(PAYS, pools=poor, rival_hit_tokens=5_000_000), [])
    assert verdict.outcome == "pays_only_if"
    text = " ".join(verdict.conditions)
    assert "at least 1.50 times" in text
    assert "at least $4.50" in text
    assert "at least 45.0 % of the prompt tokens" in text
    # The rival leaves 20 % of the prompt tokens: 45 % cannot be had.
    tight = decide(replace(PAYS, pools=poor, rival_hit_tokens=40_000_000), [])
    assert "of the prompt tokens beyond" not in " ".join(tight.conditions)


def test_break_even_price_of_a_replayed_saving_is_that_of_its_whole_instances() -> None:
    # 15 000 of cost against 9 000 of whole instances: $3.00 x 15 / 9 = $5.00 a GPU-hour.
    poor = pool(saving=Range(0, 9_000, 30_000), unrounded_saving_usd=10_000)
    text = " ".join(decide(replace(PAYS, pools=poor), []).conditions)
    assert "at least $5.00" in text
    assert "times that of this trace" not in text


def test_break_even_bandwidth_names_the_nearest_path() -> None:
    verdict = decide(replace(PAYS, pools=SLOW), [])
    assert "20 GB/s" in verdict.conditions[0]
    assert "5 GB/s" in verdict.conditions[0]


def test_growth_that_would_change_the_answer_is_stated() -> None:
    # $15 000 over $500 unrounded: 30 times the load, which is another fleet.
    small = pool(saving=Range(0, 0, 900), unrounded_saving_usd=500.0)
    verdict = decide(replace(PAYS, pools=small), [])
    assert verdict.outcome == "does_not_pay"
    assert verdict.conditions == [
        "with Pool over RDMA: 30.0 times the load of this trace, at the same reuse and pool size: "
        "$15,000 of cost / $500 of freed prefill (modelled, a month at middle prices) (that is "
        "another fleet)"
    ]


def test_growth_names_what_takes_most_of_it() -> None:
    # Money meets at 15 000 / 10 000 = 1.5, prefill binds at 0.5 / 0.4 = 1.25; a whole instance at
    # 1 / 0.4 = 2.5 times the load.
    few = pool(unrounded_saving_usd=10_000.0, freed=Range(0.2, 0.4, 0.6))[0]
    growth = growth_to_pay(replace(PAYS, prefill_utilisation=0.4), few)
    assert growth is not None
    assert (growth.times, growth.division) == (2.5, "1 instance / 0.40 instances freed")
    idle = growth_to_pay(replace(PAYS, prefill_utilisation=0.1), few)
    assert idle is not None
    assert idle.times == pytest.approx(5.0)
    assert "prefill busy 50.0 % of the time" in idle.division
    assert growth_to_pay(PAYS, pool(unrounded_saving_usd=0.0)[0]) is None


def test_growth_of_the_best_case_is_not_that_of_a_pool() -> None:
    # Best case: 15 000 / 2 500 = 6.0 at middle prices, 10 000 / 4 000 = 2.5 at those that favour a
    # pool. The pool itself: 15 000 / 1 000 = 15 times, at its own reuse.
    bound = Bound(instances=Range(0.1, 0.15, 0.2), saving=Range(0, 2_500, 4_000), what="all free")
    own = pool(
        unrounded_saving_usd=1_000.0, instances_saved=Range(0, 0, 0.2), is_saving_replayed=False
    )
    verdict = decide(replace(PAYS, all_prefill=bound, pools=own), [])
    smaller, best, pooled = verdict.conditions
    assert smaller == "a smaller pool costs less than the $4,000 a month that the best case saves"
    assert best == (
        "in the best case (all free): 6.0 times the load of this trace at middle prices, $15,000 "
        "of cost / $2,500 saved a month (that is another fleet); 2.5 times at the prices that "
        "favour a pool most, $10,000 / $4,000. A pool that is built needs more"
    )
    assert "same reuse" not in best
    assert pooled.startswith("with Pool over RDMA: 15.0 times the load of this trace, at the same")
    lengths = decide(replace(UNKNOWN, grade="L", all_prefill=bound), [])
    assert len(lengths.conditions) == 2


def test_a_short_window_gives_no_money_a_month() -> None:
    short = replace(PAYS, span_s=29.0)
    lengths = replace(UNKNOWN, grade="L", span_s=29.0)
    for case in (
        short,
        lengths,
        replace(lengths, all_prefill=CHEAP_BOUND),
        replace(short, pools=pool(saving=Range(0, 0, 5_000))),
    ):
        verdict = decide(case, [])
        text = " ".join([verdict.headline, *verdict.reasons, *verdict.conditions])
        assert verdict.outcome in {"cannot_tell", "pays_only_if"}
        assert "$" not in text
        assert "No money a month is given: a window of 29.0 s" in text


def test_the_sentence_on_latency_ends_the_reasons() -> None:
    assert decide(replace(PAYS, latency="TTFT p99: …"), []).reasons[-1] == "TTFT p99: …"


@pytest.mark.parametrize(
    ("is_shown", "said"),
    [
        (True, "Idle DRAM does on as few instances without a pool"),
        (False, "no replay clearly shows that Idle DRAM needs more instances than the pool"),
    ],
)
def test_a_pool_whose_rival_gives_back_as_much_is_not_said_to_free_too_little(
    is_shown: bool, said: str
) -> None:
    few = pool(instances_saved=Range(0, 0, 0.7), matched_by="Idle DRAM", is_match_shown=is_shown)
    verdict = decide(replace(PAYS, pools=few, prefill_utilisation=0.1), [])
    assert verdict.outcome == "does_not_pay"
    assert verdict.headline == f"A pool does not pay at this load: {said}"


@pytest.mark.parametrize(
    ("low", "said"),
    [
        (700.0, "every pool costs at least $700, of any size"),
        (0.0, "state `operations_fte_share` (at its middle they cost $900 a month)"),
    ],
)
def test_what_every_pool_costs_is_said_only_where_it_is_something(low: float, said: str) -> None:
    bound = Bound(instances=Range(0, 0.5, 1), saving=Range(0, 400, 800), what="all is free")
    case = replace(
        PAYS,
        pools=(),
        all_prefill=bound,
        smallest_pool_cost=Range(low, 900, 1000),
        lowest_pool_cost=Range(1000, 2000, 3000),
    )
    verdict = decide(case, [])
    assert verdict.headline.startswith("A pool of this size does not pay")
    assert said in verdict.conditions[0]
    assert "$0" not in verdict.conditions[0]


def test_an_instance_of_several_gpus_is_named_as_such() -> None:
    few = replace(PAYS, pools=pool(instances_saved=Range(0.3, 0.5, 0.7)), prefill_utilisation=0.1)
    verdict = decide(replace(few, gpus_per_instance=8), [])
    assert "would not remove a whole instance of 8 GPUs" in verdict.headline


def test_unknown_reuse_names_one_measurement() -> None:
    assert decide(replace(UNKNOWN, grade="L"), []).next_measurement == MEASUREMENT


def confidence(verdict: Verdict) -> str:
    return verdict.confidence


def test_unconfirmed_defaults_cap_confidence_at_low() -> None:
    proof = replace(PAYS, all_prefill=CHEAP_BOUND, pools=NOTHING_SHOWN)
    assert confidence(decide(proof, [])) == "high"
    verdict = decide(replace(proof, unconfirmed=("llm", "hardware")), [])
    assert confidence(verdict) == "low"
    assert "llm, hardware" in verdict.confidence_reasons[0]


def test_pays_without_a_sampled_chance_is_of_low_confidence() -> None:
    verdict = decide(replace(PAYS, chance=None), [])
    assert verdict.outcome == "pays"
    assert confidence(verdict) == "low"
    assert "was not sampled" in verdict.confidence_reasons[0]


def test_an_hour_of_grade_a_data_is_medium_at_best() -> None:
    proof = replace(PAYS, all_prefill=CHEAP_BOUND, pools=NOTHING_SHOWN, span_s=3_600.0)
    assert confidence(decide(proof, [])) == "medium"
    assert confidence(decide(PAYS, [])) == "medium"


def test_weak_grades_are_low_confidence() -> None:
    assert confidence(decide(replace(UNKNOWN, grade="L", all_prefill=CHEAP_BOUND), [])) == "low"


def test_a_proof_needs_the_history_of_the_window() -> None:
    cheap = replace(PAYS, all_reuse=CHEAP_BOUND, pools=NOTHING_SHOWN)
    assert decide(cheap, []).outcome == "does_not_pay"
    for doubt in (
        replace(cheap, is_history_known=False),
        replace(cheap, all_reuse=replace(CHEAP_BOUND, is_peak=False)),
        replace(cheap, requests=999),
    ):
        assert decide(doubt, []).outcome != "does_not_pay"
    few = pool(extra_hit_tokens=10)
    served = replace(PAYS, rival_hit_tokens=59_500_000, pools=few)
    assert decide(served, []).outcome == "does_not_pay"
    doubted = decide(replace(served, is_history_known=False), [])
    assert doubted.outcome == "pays_only_if"
    assert "serves almost the same hits" in doubted.headline


def test_that_no_gpu_is_saved_is_said_only_where_no_replay_says_otherwise() -> None:
    said = "where prefill does not bind, no GPU is saved"
    small = pool(instances_saved=Range(0, 0, 0.7), freed=Range(0.3, 0.5, 0.7))
    idle = replace(PAYS, prefill_utilisation=0.1, pools=small)
    assert said in " ".join(decide(idle, []).reasons)
    assert said not in " ".join(decide(replace(idle, is_fewer_kept=True), []).reasons)
    assert said not in " ".join(decide(replace(idle, prefill_utilisation=0.6), []).reasons)


def path(name: str, **changes: object) -> PoolCase:
    return replace(POOL, option_id=f"pool_dram_{name}", title=name, **changes)  # type: ignore[arg-type]


def test_one_choice_of_the_pool_and_ties_go_to_tail_cost_and_the_simpler_path() -> None:
    bounce, direct = path("rdma_bounce", tail_s=0.92078), path("rdma_direct", tail_s=0.92057)
    assert choose_pool([direct, bounce]) is bounce  # equal tails: 0.02 %; the simpler path
    slow = replace(bounce, tail_s=0.98)
    assert choose_pool([direct, slow]) is direct  # a tail longer by 6 %
    dear = replace(bounce, cost=Range(10_000, 15_200, 20_000))
    assert choose_pool([direct, dear]) is direct  # 200 of 15 200 is above the hundredth
    tcp = path("tcp", saving=Range(0, 99_000, 120_000))
    assert choose_pool([tcp, direct]) is direct  # it pays, the gamble need not
    assert choose_pool([]) is None


def test_a_tail_that_rests_on_few_requests_is_named() -> None:
    few = replace(PAYS, pools=pool(unjudged="p99 of short prompts 2 s against 1 s"))
    assert "p99 of short prompts 2 s against 1 s" in decide(few, []).reasons


def test_a_replay_that_starts_cold_leaves_its_answer_open() -> None:
    dear = replace(PAYS, is_cold=True, pools=pool(saving=Range(0, 0, 900)))
    verdict = decide(dear, [])
    assert verdict.outcome == "does_not_pay"
    assert "starts with empty caches" in verdict.conditions[-1]


def test_kv_of_fewer_bits_pays_only_if_answers_stay_good_and_says_how_to_test() -> None:
    # The same numbers pay with KV as it is.
    verdict = decide(replace(PAYS, pools=pool(is_quantised=True)), [])
    assert verdict.outcome == "pays_only_if"
    assert "answers are as good as you need" in verdict.headline
    for said in (verdict.reasons, verdict.conditions):
        assert any("not evaluated here" in one and "--kv-cache-dtype fp8" in one for one in said)
    assert not any("not evaluated" in one for one in decide(PAYS, []).reasons)


def test_what_pays_as_it_is_comes_before_more_with_fewer_bits() -> None:
    narrow = replace(
        POOL,
        option_id="pool_dram_rdma_direct_fp8",
        is_quantised=True,
        saving=Range(90_000, 120_000, 150_000),
        tail_s=1.0,
    )
    best = choose_pool((narrow, POOL))
    assert best is not None
    assert best.option_id == POOL.option_id
    # Nothing pays: more is saved with fewer bits. Equal: as it is, though its tail is longer.
    dear = Range(200_000, 210_000, 220_000)
    best = choose_pool((replace(narrow, cost=dear), replace(POOL, cost=dear)))
    assert best is not None
    assert best.is_quantised
    best = choose_pool((replace(narrow, cost=dear, saving=POOL.saving), replace(POOL, cost=dear)))
    assert best is not None
    assert best.option_id == POOL.option_id
