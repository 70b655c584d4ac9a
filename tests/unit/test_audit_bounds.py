"""Bounds and money, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.audit.bounds import (
    all_prefill_upper_s,
    busiest_instances,
    hit_tokens_per_request,
    places_in,
    recompute_instance_s,
    recompute_s_per_request,
    spared_s_per_request,
    window_reusable_tokens,
)
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.economics import (
    freed_instances,
    peak_instances,
    value_saving,
)
from kvtrace.audit.money.gpu_worth import GpuWorth, gpu_worth
from kvtrace.audit.slo.fleets import Saved
from kvtrace.audit.uncertainty.ranges import Range, finite, ratio
from kvtrace.cost.tco.need import Need
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.replay.window import slice_requests
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S
from tests.unit.audit_fakes import (
    LinearPrefill,
    make_deployment,
    make_fleet,
    make_result,
    make_trace,
)


def trace_of(
    runs: list[list[tuple[int, int]]], prompts: list[int], *, block: int = 10
) -> RequestTrace:
    """A trace of requests given as runs (first block, blocks)."""
    flat = [run for request in runs for run in request]
    return replace(
        make_trace(requests=1),
        request_key=np.arange(len(runs)),
        arrived_at_ns=np.arange(len(runs), dtype=np.int64),
        prompt_tokens=np.array(prompts, dtype=np.int64),
        run_offset=np.cumsum([0, *(len(request) for request in runs)]),
        run_start=np.array([start for start, _ in flat], dtype=np.int64),
        run_blocks=np.array([count for _, count in flat], dtype=np.int64),
        block_size_tokens=block,
    )


def test_reusable_is_the_leading_run_of_blocks_seen_before() -> None:
    trace = trace_of(
        [
            [(0, 5)],  # first: nothing
            [(0, 3), (5, 2)],  # blocks 0-2 seen: 30 tokens
            [(0, 4), (7, 1)],  # blocks 0-3 seen: 40
            [(8, 1), (0, 5)],  # a new head: nothing behind it counts
            [(0, 5)],  # all 50 seen, but the last token is computed: 49
            [(5, 2), (9, 1)],  # blocks 5-6 seen: 20
        ],
        [50, 50, 50, 60, 50, 30],
    )
    assert reusable_tokens(trace).tolist() == [0, 30, 40, 0, 49, 20]


def test_reusable_ends_inside_a_run_that_reaches_new_blocks() -> None:
    # Blocks 0-3 are seen; the second request's run 0-5 is new from block 4 on.
    trace = trace_of([[(0, 4)], [(0, 6)]], [40, 55])
    assert reusable_tokens(trace).tolist() == [0, 40]


def test_reusable_of_no_request_and_of_a_request_without_blocks() -> None:
    assert reusable_tokens(trace_of([], [])).tolist() == []
    assert reusable_tokens(trace_of([[], [(0, 1)]], [5, 10])).tolist() == [0, 0]


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=12))
def test_reusable_equals_a_walk_over_a_set_of_prefixes(requests: list[list[int]]) -> None:
    seen: dict[tuple[int, ...], int] = {}
    runs, expected = [], []
    for tokens in requests:
        prefixes = [tuple(tokens[: n + 1]) for n in range(len(tokens))]
        hit = 0
        while hit < len(prefixes) and prefixes[hit] in seen:
            hit += 1
        expected.append(min(hit * 10, len(tokens) * 10 - 1))
        for prefix in prefixes:
            seen.setdefault(prefix, len(seen))
        runs.append([(seen[prefix], 1) for prefix in prefixes])
    trace = trace_of(runs, [len(tokens) * 10 for tokens in requests])
    assert reusable_tokens(trace).tolist() == expected


def spared(trace: RequestTrace, rival: ReplayResult) -> float:
    reusable = reusable_tokens(trace)
    held = hit_tokens_per_request(rival)
    return float(spared_s_per_request(trace, held, reusable, LinearPrefill()).sum())


def test_free_reuse_is_priced_alike_one_by_one_and_as_arrays() -> None:
    class OneByOne:
        def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
            return float(make_deployment().prefill.prefill_s(new_tokens, cached_tokens))

    trace = make_trace(requests=3)
    held, reusable = np.array([0, 100, 9_000]), np.array([0, 7_000, 7_000])
    arrays = spared_s_per_request(trace, held, reusable, make_deployment().prefill)
    loops = spared_s_per_request(trace, held, reusable, OneByOne())
    assert arrays == pytest.approx(loops)
    assert arrays.tolist()[0::2] == [0.0, 0.0]
    assert arrays[1] > 0


def test_reuse_of_a_window_counts_what_came_before_it() -> None:
    # Six requests of the same 70 blocks; the last three by themselves know only two repetitions.
    whole = replace(make_trace(requests=6), request_key=np.array([40, 30, 20, 10, 60, 50]))
    window = slice_requests(whole, 3, 6)
    assert places_in(whole, window) is not None
    assert reusable_tokens(window).tolist() == [0, 7_000, 7_000]
    known = window_reusable_tokens(window, whole=whole, is_whole=False)
    assert known is not None
    assert known.tolist() == [7_000] * 3
    assert window_reusable_tokens(window, whole=None, is_whole=False) is None
    other = replace(whole, request_key=np.arange(6) + 1_000)
    assert window_reusable_tokens(window, whole=other, is_whole=False) is None


def test_a_burst_is_seen_in_its_own_window_and_not_in_the_mean() -> None:
    # An hour with one second of work every minute, and 200 s of work within the 20 s from 1 800 s.
    quiet = np.arange(0, 3_600, 60) * NS_PER_S
    burst = (1_800 + np.arange(20)) * NS_PER_S
    arrived = np.sort(np.concatenate((quiet, burst)))
    seconds = np.where(np.isin(arrived, burst), 10.0, 1.0)
    seconds[np.searchsorted(arrived, 1_800 * NS_PER_S)] = 1.0  # the quiet one of that instant
    # 20 s: 20 x 10 + the quiet one = 201 s. 5 min: 5 quiet ones in all: 205 s.
    assert busiest_instances(arrived, seconds, 20.0) == pytest.approx(201 / 20)
    assert busiest_instances(arrived, seconds, 300.0) == pytest.approx(205 / 300)
    peak = peak_instances(arrived, seconds, 3_540.0)
    assert peak.low == pytest.approx(260 / 3_540)
    assert peak.value == pytest.approx(205 / 300 / 0.7)
    assert peak.high == pytest.approx(201 / 20)
    assert busiest_instances(arrived[:0], seconds[:0], 20.0) == 0.0


def test_each_prompt_is_priced_alone() -> None:
    trace = replace(make_trace(requests=3), prompt_tokens=np.array([0, 100, 50]))
    assert recompute_s_per_request(trace, LinearPrefill()).tolist() == [0.0, 4.0, 2.0]


def test_free_reuse_spares_what_the_rival_leaves() -> None:
    # 1 999 requests could reuse 7 000 tokens, the rival serves 2 800: 4 200 x 0.04 s = 168 s each.
    rival = make_result("dram_idle", hits={"hbm": 2000, "host_dram": 800})
    assert spared(make_trace(), rival) == pytest.approx(1999 * 168)


def test_free_reuse_spares_nothing_where_the_rival_serves_all() -> None:
    rival = make_result("hbm_only", hits={"hbm": 7000})
    assert spared(make_trace(), rival) == 0.0


def test_recompute_is_the_whole_prefill() -> None:
    assert recompute_instance_s(make_result("hbm_only", hits={"hbm": 0})) == 2000 * 400.0


class Quadratic:
    """Seconds that grow with the square of the length."""

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        return new_tokens**2


def test_prefill_of_buckets_is_exact_for_a_linear_model() -> None:
    buckets = [(1024, 2048, 2, 3000), (8192, 16384, 1, 10_000)]
    assert all_prefill_upper_s(buckets, LinearPrefill()) == pytest.approx(0.04 * 13_000)


@given(st.lists(st.integers(4, 7), min_size=1, max_size=8))
def test_prefill_of_buckets_is_an_upper_bound_for_a_convex_model(lengths: list[int]) -> None:
    exact = sum(length**2 for length in lengths)
    closed = all_prefill_upper_s([(4, 8, len(lengths), sum(lengths))], Quadratic())
    opened = all_prefill_upper_s([(4, None, len(lengths), sum(lengths))], Quadratic())
    assert closed >= exact - 1e-9
    assert opened >= exact - 1e-9


def test_empty_buckets_cost_nothing() -> None:
    assert all_prefill_upper_s([(4, 8, 0, 0)], Quadratic()) == 0.0


def worth() -> GpuWorth:
    return gpu_worth(make_fleet())


def saved(at_least: int, *, low: int = 0) -> Saved:
    return Saved(at_least, is_replayed=at_least > 0, how="", low=low)


def test_freed_instances_follow_the_busy_share_of_the_fleet() -> None:
    # 140 s freed in 100 s: 1.4 instances at full use, 2 at 70 %, 2.8 at half.
    freed = freed_instances(140.0, 100.0)
    assert (freed.low, freed.value, freed.high) == pytest.approx((1.4, 2.0, 2.8))
    assert freed_instances(-5.0, 100.0) == Range(0, 0, 0)


def test_savings_are_whole_instances_by_replay_and_never_more_than_the_fleet() -> None:
    fleet = make_fleet()  # 8 instances at $17 520 a month
    saving = value_saving(saved(1, low=1), Range(1.4, 2.9, 2.95), fleet, worth(), is_replayed=True)
    assert saving.instances == Range(1, 1, 2)  # 2.95 are two whole ones
    assert saving.usd_per_month.value == pytest.approx(17_520)
    assert saving.usd_per_month.high == pytest.approx(2 * 17_520)
    assert saving.unrounded_usd_per_month == pytest.approx(2.9 * 17_520)
    most = value_saving(
        saved(2, low=2), Range(9, 12, 20), fleet, worth(), is_replayed=True
    ).instances
    assert most == Range(2, 2, 8)


def test_the_low_of_a_saving_is_that_of_the_ends_of_the_constants() -> None:
    # Replays at middle constants give back one instance, those at the ends none: $0 to $17 520.
    saving = value_saving(
        saved(1, low=0),
        Range(0.4, 0.9, 1.2),
        make_fleet(),
        gpu_worth(make_fleet()),
        is_replayed=True,
    )
    assert saving.instances == Range(0, 1, 1)
    assert saving.usd_per_month.low == 0.0
    assert saving.usd_per_month.value == pytest.approx(17_520)


def test_an_estimate_without_a_replay_has_a_low_of_nothing() -> None:
    fleet = make_fleet()
    assert value_saving(
        saved(0), Range(2, 2.9, 4), fleet, worth(), is_replayed=False
    ).instances == Range(0, 2, 4)
    # The last instance serves, unless the rival needs more than all of them.
    all_of_it = Range(9, 12, 20)
    assert value_saving(saved(0), all_of_it, fleet, worth(), is_replayed=False).instances.value == 7
    able = value_saving(saved(0), all_of_it, fleet, worth(), is_replayed=False, is_rival_able=False)
    assert able.instances.value == 8


def test_an_avoided_instance_is_in_the_high_only() -> None:
    # One instance serves; without the pool two would: by a load of 1, 0.5 and 0.5 of the peak the
    # second runs in one hour of three, $2 190 a GPU x 8 / 3 = $5 840 a month.
    fleet = replace(make_fleet(), instances=1)
    beyond = Saved(0, is_replayed=False, how="", avoided=1, needed_without=2)
    hours = gpu_worth(fleet, profile=(1.0, 0.5, 0.5))
    saving = value_saving(beyond, Range(0.1, 0.2, 0.3), fleet, hours, is_replayed=False)
    assert saving.instances == Range(0, 0, 1)
    assert saving.usd_per_month.value == 0.0
    assert saving.usd_per_month.high == pytest.approx(5_840)
    # A search that counted three without it: 2 + 1 + 1 of 2 x 3 hours, for two instances.
    counted = Saved(2, is_replayed=True, how="", low=2, needed_without=3)
    whole = value_saving(counted, Range(0.1, 0.2, 0.3), fleet, hours, is_replayed=True)
    assert whole.usd_per_month.low == pytest.approx(2 * 17_520 * 4 / 6)


def test_costs_of_options_that_nobody_states() -> None:
    bills = Bills(make_fleet())
    assert bills.usd_per_month("dram_idle") == Range(0, 0, 0)
    idle = bills.bill("dram_idle")
    assert idle is not None
    assert idle.idle_dram_at_cost.value > 0
    pool = bills.bill("pool_dram_tcp")
    assert pool is not None
    assert {"pool_nodes", "pool_dram", "pool_nics", "power", "operations"} <= {
        line.id for line in pool.lines
    }
    assert bills.usd_per_month("pool_cloud_tcp") is None


def test_a_stated_need_is_what_is_priced() -> None:
    fleet = make_fleet()
    bills = Bills(fleet, needs={"pool_dram_tcp": Need(pool_dram_bytes=1e12)})
    bill = bills.bill("pool_dram_tcp")
    assert bill is not None
    assert [line.id for line in bill.lines] == ["pool_dram", "power", "financing"]


def test_ranges_take_the_widest_interval() -> None:
    a, b = Range(1, 2, 3), Range(10, 20, 40)
    assert a + b == Range(11, 22, 43)
    assert a * b == Range(10, 40, 120)
    assert b / a == Range(10 / 3, 10, 40)
    assert a.scaled(2) == Range(2, 4, 6)


def test_unknown_stays_unknown() -> None:
    assert finite(float("nan")) is None
    assert finite(None) is None
    assert ratio(1, 0) is None
    assert ratio(None, 2) is None
    assert ratio(1, 2) == 0.5
