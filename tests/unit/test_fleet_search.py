"""Fleets searched over replays of services whose answer is known.

A request takes an instance 10 s (1 000 tokens of 0.01 s), one comes every 2.6 s: four instances
serve all at once, at a load of 0.96, and three never catch up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.api.fleet_loads import LoadedWindows
from kvtrace.api.fleet_questions import Asker, Stated
from kvtrace.audit.fleet.binding import bind
from kvtrace.audit.fleet.needs import estimated_need, searched_need
from kvtrace.audit.fleet.record import OptionNeed
from kvtrace.audit.fleet.surrogate import Sample, check_surrogate, estimate
from kvtrace.audit.slo.figures import SloCheck
from kvtrace.audit.slo.reference import reference_of
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.engine import simulate
from kvtrace.replay.relax import RESOURCES, Resource, without_limit
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S
from tests.unit.replay_cases import Ask, FlatStep, links, make_scenario, make_trace

TRACE = make_trace([Ask(2.6 * place, prompt=1000) for place in range(800)])
TTFT = SloTarget(ttft_s=10.001)


def build(option_id: str, instances: int) -> Scenario:
    return make_scenario(option_id=option_id, instances=instances)


def make_asker(target: SloTarget = TTFT, *, trace: RequestTrace = TRACE) -> Asker:
    windowed = WindowedTrace(trace, 0)
    today = simulate(trace, build("hbm_only", 5))
    sessions = trace.session * 0
    return Asker(
        loads=LoadedWindows(windowed, sessions, seed=1),
        today=reference_of(trace, today),
        stated=Stated(5, 8, target, build, lambda _: 0.0),
    )


@pytest.mark.parametrize(("load", "instances"), [(1.0, 4), (2.0, 8)])
@pytest.mark.parametrize("start", [1, 5])
def test_each_load_needs_the_instances_that_its_requests_keep_busy(
    load: float, instances: int, start: int
) -> None:
    # The copy of the one session is moved as a whole, so twice the load is twice the rate.
    asker = make_asker()
    found = asker.fewest("hbm_only", load, start)
    need = searched_need(asker.question(load), "hbm_only", found, surrogate=None)
    assert (need.instances, need.gpus, need.basis) == (instances, 8 * instances, "replayed")
    assert need.reason.startswith("Test")


def test_no_worse_than_today_is_kept_by_as_many_as_serve_at_once() -> None:
    assert make_asker(SloTarget()).fewest("hbm_only", 1.0, 5).count == 4


def test_an_slo_below_the_time_of_a_prefill_is_infeasible_and_says_its_floor() -> None:
    asker = make_asker(SloTarget(ttft_s=9.0))
    found = asker.fewest("hbm_only", 1.0, 5)
    need = searched_need(asker.question(1.0), "hbm_only", found, surrogate=None)
    assert need.instances is None
    assert need.is_infeasible
    assert need.floor_s == pytest.approx(10.0)
    assert need.allowed_s == pytest.approx(9.0)
    assert "no number of instances keeps the SLO" in need.reason


def test_an_slo_that_more_instances_would_keep_is_not_infeasible() -> None:
    # Ten at once, of 10 s each: half of them wait where only four may be had.
    burst = make_trace([Ask(0, prompt=1000) for _ in range(40)] + [Ask(9000, prompt=1)])
    asker = make_asker(trace=burst)
    need = searched_need(
        asker.question(1.0), "hbm_only", asker.fewest("hbm_only", 1.0, 5), surrogate=None
    )
    assert need.instances is None  # 40 are needed, 10 are looked at
    assert not need.is_infeasible
    assert need.at_least == 11


def test_the_load_at_equal_gpus_is_below_the_rate_that_they_serve() -> None:
    # Five instances serve 1.3 times the rate; sessions come unevenly, so it is less.
    asker = make_asker(SloTarget(ttft_s=20.0, share=0.9))
    asker.loads.sessions = TRACE.session  # each request a session of its own
    load = asker.load_at_slo("hbm_only", 1.25)
    assert 0.75 <= load <= 1.3
    assert (load * 8).is_integer()


def test_an_overloaded_fleet_does_not_carry_the_load_and_four_do() -> None:
    # Three have an offered load of 1.28.
    assert make_asker().carries("hbm_only", 1).count == 4


def test_the_window_of_a_grown_load_begins_when_it_did_and_stays_warm() -> None:
    # Twenty sessions of one request each, the window from the eleventh on.
    trace = make_trace([Ask(100.0 * place, prompt=10) for place in range(20)])
    sessions = np.arange(20, dtype=np.int64)
    loads = LoadedWindows(WindowedTrace(trace, 10), sessions, seed=3)
    assert loads.at(1.0).trace is trace
    doubled = loads.at(2.0)
    assert doubled.trace.requests == 40
    arrived = doubled.trace.arrived_at_ns
    assert arrived[doubled.first] >= 1000 * NS_PER_S > arrived[doubled.first - 1]
    more = loads.at(1.5)
    assert 20 <= more.trace.requests <= 40
    assert set(more.trace.request_key.tolist()) <= set(doubled.trace.request_key.tolist())


# --- what binds ----------------------------------------------------------------------------------


def test_prefill_binds_where_free_prefill_restores_the_slo() -> None:
    asker = make_asker()
    tried = asker.ask("hbm_only", 3, 1.0)
    relaxed = {one: asker.relaxed(tried, one).check for one in RESOURCES}
    binding = bind(TRACE, tried.result, tried.check, relaxed)
    assert (binding.binds, binding.basis, binding.is_missed) == ("prefill", "relaxed", True)
    assert binding.used["prefill"] == pytest.approx(10 / 2.6 / 3, rel=0.01)


def test_decode_binds_where_free_prefill_does_not_help() -> None:
    # A step takes 0.1 s and 0.2 s more a sequence: nobody keeps 0.15 s a token.
    asks = [Ask(2.5 * place, prompt=10, output=100) for place in range(200)]
    trace = make_trace(asks)
    asker = make_asker(SloTarget(ttft_s=60.0, tpot_s=0.15), trace=trace)

    def slow_decode(option_id: str, instances: int) -> Scenario:
        decode = FlatStep(0.1, sequence_s=0.2)
        return make_scenario(option_id=option_id, instances=instances, decode=decode)

    asker.stated = replace(asker.stated, build=slow_decode)
    tried = asker.ask("hbm_only", 4, 1.0)
    relaxed = {one: asker.relaxed(tried, one).check for one in RESOURCES}
    assert not relaxed["prefill"].is_kept
    binding = bind(trace, tried.result, tried.check, relaxed)
    assert binding.binds == "tpot"
    only_prefill: dict[Resource, SloCheck] = {"prefill": relaxed["prefill"]}
    assert bind(trace, tried.result, tried.check, only_prefill).binds != "prefill"


def test_a_free_resource_leaves_the_others_as_they_are() -> None:
    scenario = make_scenario(hbm_capacity_bytes=100.0, links=links(pool_nic=50.0))
    assert without_limit(scenario, "links").links["pool_nic"].bytes_per_s == pytest.approx(5e7)
    assert without_limit(scenario, "hbm_capacity").hbm_capacity_bytes == pytest.approx(1e8)
    fast = without_limit(scenario, "prefill")
    assert fast.prefill.prefill_s(1000, 0) == pytest.approx(1e-5)
    assert fast.decode is scenario.decode
    slow = without_limit(scenario, "decode")
    assert slow.decode.step_s(1, 1) == pytest.approx(1e-7)
    assert slow.prefill is scenario.prefill


# --- the surrogate -------------------------------------------------------------------------------


def test_the_surrogate_scales_what_was_replayed() -> None:
    # Kept on 5 at a load of 0.8: 10 at twice the load. Missed on 4: at least 9 there.
    samples = [Sample(5, 0.8, is_kept=True), Sample(4, 1.0, is_kept=False)]
    assert estimate(samples, None, 1.0).instances == 5
    doubled = estimate(samples, None, 2.0)
    assert (doubled.instances, doubled.at_least) == (10, 9)


def test_an_option_with_less_work_needs_what_brings_it_to_todays_load() -> None:
    # 0.4 on 10 instances is 4 instances of work; today keeps the SLO at 0.8: 5.
    today = Sample(10, 0.8, is_kept=True)
    assert estimate([Sample(10, 0.4, is_kept=True)], today, 1.0).instances == 5
    assert estimate([Sample(10, 0.9, is_kept=False)], today, 1.0).instances == 12  # 9 / 0.8


def test_an_option_that_misses_the_slo_below_todays_load_is_not_sized_by_load() -> None:
    today = Sample(10, 0.8, is_kept=True)
    assert estimate([Sample(10, 0.4, is_kept=False)], today, 1.0).instances is None


def test_replays_that_close_the_bracket_are_no_surrogate() -> None:
    asker = make_asker()
    tried = [asker.ask("hbm_only", 4, 1.0), asker.ask("hbm_only", 3, 1.0)]
    own, grown = (
        estimated_need(asker.question(load, is_replayed=False), "hbm_only", None, tried)
        for load in (1.0, 2.0)
    )
    assert (own.instances, own.basis) == (4, "replayed")
    assert (grown.instances, grown.basis) == (8, "surrogate")
    assert asker.replays == 2


def test_a_count_that_was_replayed_goes_before_an_estimate_which_stands_beside_it() -> None:
    asker = make_asker()
    tried = [asker.ask("hbm_only", 6, 1.0), asker.ask("hbm_only", 5, 1.0)]
    load = tried[0].sample.offered_load
    assert load
    today = Sample(6, 2 * load, is_kept=True)  # at twice the load as many would be half as many
    need = estimated_need(asker.question(1.0), "hbm_only", today, tried)
    assert (need.instances, need.basis, need.surrogate) == (5, "enough", 3)


def test_no_surrogate_stands_for_an_option_that_an_empty_fleet_does_not_help() -> None:
    asker = make_asker(SloTarget(ttft_s=9.0))
    today = Sample(5, 1.0, is_kept=True)  # the load alone would say five
    tried = [asker.ask("hbm_only", 5, 1.0)]
    assert estimate([tried[0].sample], today, 1.0).instances is None  # missed below today's load
    need = estimated_need(asker.question(1.0), "hbm_only", Sample(5, 0.5, is_kept=True), tried)
    assert (need.instances, need.surrogate, need.is_infeasible) == (None, None, True)
    assert need.floor_s == pytest.approx(10.0)


def test_the_error_of_the_surrogate_is_that_of_the_searches_beside_it() -> None:
    def need(instances: int, surrogate: int | None, option: str = "kv_routing") -> OptionNeed:
        return OptionNeed(
            option=option,
            load=1.0,
            instances=instances,
            gpus=None,
            basis="replayed",
            at_least=instances,
            most=10,
            surrogate=surrogate,
        )

    own = need(5, 5, "hbm_only")
    check = check_surrogate([own, need(4, 4), need(8, 9), need(7, 5), need(3, None)], "hbm_only")
    assert check is not None
    assert (check.checked, check.equal, check.most_over, check.most_under) == (3, 1, 1, 2)
    lost = need(4, 6)
    lost.instances, lost.basis = None, "none"
    again = check_surrogate([own, need(4, 4), lost], "hbm_only")
    assert again is not None
    assert (again.checked, again.unfounded) == (1, 1)
    assert check_surrogate([own, need(3, None)], "hbm_only") is None
