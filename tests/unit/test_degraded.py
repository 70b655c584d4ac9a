"""A pool that is down, cold, or on one hot node; and how long it takes to be warm again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.audit.fleet.facts import DegradedFacts
from kvtrace.audit.fleet.record import DegradedState
from kvtrace.audit.fleet.rewarm import hit_tokens, requests_before, rewarm_s
from kvtrace.audit.fleet.states import Judge, build_degraded
from kvtrace.audit.slo.fleets import Saved
from kvtrace.audit.slo.reference import reference_of
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.degraded import cold_window, with_cold_pool, with_hot_node, without_pool
from kvtrace.replay.engine import simulate
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario, StageSpec, TierSpec
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import RequestTrace
from tests.unit import audit_fakes
from tests.unit.replay_cases import Ask, links, make_scenario, make_trace

STAGE = StageSpec("pull", ("pool_nic",), 0.01)
POOL = TierSpec("pool", "shared", 1e6, 0.001, (STAGE,), (STAGE,))
LABELS = "abcdefgh"


def pooled(**changes: object) -> Scenario:
    """Two instances, HBM of eight blocks each, a pool that holds everything."""
    base = make_scenario(
        option_id="pool_test",
        instances=2,
        hbm_capacity_bytes=160.0,
        tiers=(POOL,),
        links=links(pool_nic=1000.0),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def hbm_only() -> Scenario:
    return make_scenario(option_id="hbm_only", instances=2, hbm_capacity_bytes=160.0)


ASKS = [Ask(0.7 * place, LABELS[place % 5 :][:3]) for place in range(40)]
TRACE = make_trace(ASKS)


def test_with_its_pool_down_an_option_is_the_one_without_a_pool_on_the_same_fleet() -> None:
    down, hbm = simulate(TRACE, without_pool(pooled())), simulate(TRACE, hbm_only())
    assert down.timeline.ttft_s.tolist() == hbm.timeline.ttft_s.tolist()
    assert down.timeline.e2e_s.tolist() == pytest.approx(hbm.timeline.e2e_s.tolist(), nan_ok=True)
    assert set(down.timeline.hit_tokens) == {"hbm"}
    assert down.link_use == ()


def test_local_tiers_outlive_the_pool() -> None:
    dram = TierSpec("host_dram", "instance", 500.0, 0.0, (StageSpec("load", ("pcie",), 0.0),), ())
    scenario = pooled(tiers=(dram, POOL), links=links(pcie=1e4, pool_nic=1e3))
    left = without_pool(scenario)
    assert [tier.tier_id for tier in left.tiers] == ["host_dram"]
    assert set(left.links) == {"pcie"}


def test_one_hot_node_of_four_slows_the_shared_links_alone() -> None:
    # Three quarters over one of four nodes: its quarter of the rate passes 3/4, so 1/3 in all.
    scenario = pooled(links=links(nic=400.0, pool_nic=1200.0))
    hot = with_hot_node(scenario, nodes=4, share=0.75)
    assert hot.links["pool_nic"].bytes_per_s == pytest.approx(400.0)
    assert hot.links["nic"].bytes_per_s == 400.0
    # One node, or a share that is even, changes nothing.
    assert with_hot_node(scenario, nodes=1, share=0.75).links == scenario.links
    assert with_hot_node(scenario, nodes=4, share=0.25).links == scenario.links


def test_a_restarted_pool_is_empty_and_hbm_is_not() -> None:
    # a b c fills HBM of one instance and the pool; the next instance would find it in the pool.
    trace = make_trace([Ask(0, "abc"), Ask(100, "abc"), Ask(100, "abc")])
    scenario = pooled(hbm_capacity_bytes=60.0, routing="round_robin")
    warm = simulate(trace, scenario, warmup_requests=1)
    cold = simulate(trace, with_cold_pool(scenario), warmup_requests=1)
    assert sorted(hit_tokens(warm).tolist()) == [29, 29]
    assert sorted(hit_tokens(cold).tolist()) == [0, 29]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 5), min_size=4, max_size=24), st.integers(1, 3))
def test_cold_never_hits_more_than_warm(places: list[int], blocks: int) -> None:
    asks = [Ask(float(at), LABELS[place:][:blocks]) for at, place in enumerate(places)]
    trace, half = make_trace(asks), len(asks) // 2
    scenario = pooled(idealised=True)
    warm = simulate(trace, scenario, warmup_requests=half)
    cold = simulate(trace, with_cold_pool(scenario), warmup_requests=half)
    released = simulate(WindowedTrace(trace, half).window, scenario)
    totals = [int(hit_tokens(one).sum()) for one in (released, cold, warm)]
    assert totals == sorted(totals)


def test_a_window_without_a_past_is_cut_in_half_and_one_with_a_past_is_not() -> None:
    whole = make_trace([Ask(float(at), prompt=10) for at in range(101)])
    assert cold_window(WindowedTrace(whole, 0)).first == 50
    assert cold_window(WindowedTrace(whole, 10)).first == 50  # 10 s of past before 90 s
    assert cold_window(WindowedTrace(whole, 40)).first == 40  # 40 s before 60 s


# --- re-warming ----------------------------------------------------------------------------------


def service(span_s: float = 600.0) -> RequestTrace:
    """1 000 requests in ten minutes."""
    return audit_fakes.make_trace(requests=1000, span_s=span_s)


def hitting(tokens: np.ndarray) -> ReplayResult:
    base = audit_fakes.make_result("pool_dram_tcp", hits={"hbm": 0, "pool": 0}, requests=1000)
    found = {"hbm": np.zeros(1000, np.int64), "pool": tokens.astype(np.int64)}
    return replace(base, timeline=replace(base.timeline, hit_tokens=found))


@pytest.mark.parametrize(("cold_requests", "seconds"), [(0, 0.0), (90, 60.0), (250, 180.0)])
def test_it_is_warm_again_at_the_end_of_the_last_slice_that_hit_less(
    cold_requests: int, seconds: float
) -> None:
    # Minutes of 100 requests. Warm hits 5 000 of 10 000 tokens each, cold none at first.
    warm = np.full(1000, 5000)
    cold = np.where(np.arange(1000) < cold_requests, 0, 5000)
    assert rewarm_s(service(), hitting(cold), hitting(warm)) == pytest.approx(seconds)


def test_two_points_less_are_warm_enough_and_three_are_not() -> None:
    warm = hitting(np.full(1000, 5000))
    assert rewarm_s(service(), hitting(np.full(1000, 4800)), warm) == 0.0
    assert rewarm_s(service(), hitting(np.full(1000, 4700)), warm) is None


def test_requests_while_it_re_warms_are_those_that_arrived_before() -> None:
    trace = make_trace([Ask(float(at), prompt=10) for at in range(10)])
    assert requests_before(trace, 3.0) == 3
    assert requests_before(trace, 0.0) == 0


# --- what the record says ------------------------------------------------------------------------


def test_a_cold_state_says_what_is_late_and_computed_again() -> None:
    # Warm 4 000 of 10 000 tokens are hits; cold none for 100 requests, which take 160 s more each
    # and are late. 100 x 160 s x 8 GPUs.
    trace = service()
    warm = audit_fakes.make_result(
        "pool_dram_tcp", hits={"hbm": 0, "pool": 4000}, requests=1000, span_s=600.0
    )
    is_cold = np.arange(1000) < 90
    more_s = np.where(is_cold, 160.0, 0.0)
    line = warm.timeline
    cold = replace(
        warm,
        timeline=replace(
            line,
            ttft_s=line.ttft_s + more_s,
            gpu_busy_s=line.gpu_busy_s + more_s,
            hit_tokens={**line.hit_tokens, "pool": np.where(is_cold, 0, 4000).astype(np.int64)},
        ),
    )
    judge = Judge(reference_of(trace, warm), SloTarget(ttft_s=300.0), 0.0, 8)
    state = judge.cold_state("released", trace, cold, warm)
    assert state.is_rewarmed
    assert state.rewarm_s == pytest.approx(60.0)
    assert (state.within, state.late_more) == (910, 90)
    assert state.requests_rewarming is not None
    assert state.within_rewarming == state.requests_rewarming - 90
    assert state.recomputed_gpu_s == pytest.approx(90 * 160 * 8)
    assert not state.keeps_slo
    fleet = audit_fakes.make_fleet()
    weekly = replace(fleet, release_days=fleet.release_days.given(7.0, source="fleet.toml"))
    monthly = build_degraded(make_facts(state), Saved(1, True, "", without_reserve=2), weekly)
    assert monthly.releases_per_month == pytest.approx(365 / 12 / 7)
    assert monthly.cold_s_per_month == pytest.approx(60 * 365 / 12 / 7)
    assert monthly.late_requests_per_month == pytest.approx(90 * 365 / 12 / 7)
    assert monthly.recomputed_gpu_hours_per_month == pytest.approx(32 * 365 / 12 / 7)
    assert (monthly.saved, monthly.saved_with_reserve) == (2, 1)


def make_facts(*states: DegradedState) -> DegradedFacts:
    return DegradedFacts(
        option_id="pool_dram_tcp",
        instances=4,
        states=states,
        span_s=600.0,
        hot_share=0.75,
        pool_nodes=2,
        reserve_instances=5,
        reserve_at_slo=6,
        replays=4,
    )
