"""Caches as a history leaves them, windows with history, and rows that no engine accepts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.replay.engine import simulate
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.replay.warmup import most_recent
from kvtrace.replay.window import (
    WindowedTrace,
    peak_window,
    peak_window_with_history,
    size_fleet,
    within_limit,
)
from tests.unit.replay_cases import (
    KV_BYTES,
    UNLIMITED,
    Ask,
    dram_tier,
    ints,
    links,
    make_scenario,
    make_trace,
    pool_tier,
)
from tests.unit.test_replay_window import Small

FAST = 1e15
TWICE = [
    Ask(0, "abc", 35),
    Ask(1, "xyz"),
    Ask(7200, "abcd"),
    Ask(7201, "xyz"),
    Ask(7300, prompt=99),
    Ask(99_999, "q"),
]
"""Every prompt of the busiest hour was used two hours before it."""


def test_a_window_comes_with_what_was_before_it_and_nothing_after() -> None:
    windowed = peak_window_with_history(make_trace(TWICE))
    assert (windowed.first, windowed.trace.requests) == (2, 5)
    assert windowed.scored == slice(2, 5)
    assert windowed.window.request_key.tolist() == [2, 3, 4]
    assert windowed.window.arrived_at_ns.tolist() == [0, 10**9, 100 * 10**9]
    alone = peak_window(make_trace(TWICE))
    assert windowed.window.run_start.tolist() == alone.run_start.tolist()


def test_reuse_older_than_the_window_counts() -> None:
    windowed = peak_window_with_history(make_trace(TWICE))
    assert reusable_tokens(windowed.trace).tolist() == [0, 0, 30, 29, 0]
    assert reusable_tokens(windowed.trace)[windowed.scored].tolist() == [30, 29, 0]
    assert reusable_tokens(windowed.window).tolist() == [0, 0, 0]


def test_history_can_be_bounded() -> None:
    # the window starts at 7 200: 7 199 s back is request 1, not 0
    windowed = peak_window_with_history(make_trace(TWICE), history_s=7199.0)
    assert (windowed.first, windowed.trace.request_key.tolist()) == (1, [1, 2, 3, 4])
    assert reusable_tokens(windowed.trace)[windowed.scored].tolist() == [0, 29, 0]


def test_a_short_trace_is_its_own_window() -> None:
    trace = make_trace(TWICE[:2])
    windowed = peak_window_with_history(trace)
    assert windowed == WindowedTrace(trace, 0)
    assert windowed.window.requests == 2
    assert peak_window_with_history(trace, history_s=1.0).first == 0


def test_only_the_leading_known_blocks_are_reusable() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(1, "xbc"), Ask(2, "abz"), Ask(3), Ask(4, "bc", 15)])
    assert reusable_tokens(trace).tolist() == [0, 0, 20, 0, 14]
    assert reusable_tokens(make_trace([])).tolist() == []


def test_warm_caches_serve_the_window_and_only_the_window_is_counted() -> None:
    windowed = peak_window_with_history(make_trace(TWICE))
    scenario = make_scenario()
    result = simulate(windowed.trace, scenario, warmup_requests=windowed.first)
    assert result.timeline.hit_tokens["hbm"].tolist() == [30, 29, 0]
    assert result.timeline.ttft_s.tolist() == pytest.approx([0.1, 0.01, 0.99])
    assert result.span_s == pytest.approx(100.99)
    assert result.offered_load == pytest.approx((0.1 + 0.01 + 0.99) / 100)
    assert result.warmup_requests == 2
    cold = simulate(windowed.window, scenario)
    assert cold.timeline.hit_tokens["hbm"].tolist() == [0, 0, 0]


def test_a_history_warms_the_hbm_of_its_instances_in_turn_and_every_tier() -> None:
    # abc on instance 0, xyz on 1; the turn goes on with the window: xyz on 0, abc on 1
    trace = make_trace([Ask(0, "abc"), Ask(1, "xyz"), Ask(9, "xyz"), Ask(20, "abc")])
    for tiers in ((), (dram_tier(),), (pool_tier(),)):
        scenario = make_scenario(
            instances=2, tiers=tiers, links=links(pcie=FAST, nic=FAST, pool=FAST)
        )
        result = simulate(trace, scenario, warmup_requests=2)
        assert result.timeline.instance.tolist() == [0, 1]
        assert result.timeline.hit_tokens["hbm"].tolist() == [0, 0]
        for tier in tiers:
            found = 29 if tier.scope == "shared" else 0
            assert result.timeline.hit_tokens[tier.tier_id].tolist() == [found, found]
        assert {use.bytes_written for use in result.link_use} <= {0.0, 120.0}


def test_a_private_tier_is_warm_where_its_instance_was() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(1, "defghi"), Ask(9, "abcx")])
    scenario = make_scenario(
        hbm_capacity_bytes=KV_BYTES * 60, tiers=(dram_tier(),), links=links(pcie=FAST)
    )
    result = simulate(trace, scenario, warmup_requests=2)
    assert result.timeline.hit_tokens["hbm"].tolist() == [0]
    assert result.timeline.hit_tokens["host_dram"].tolist() == [30]


def test_without_reuse_a_history_warms_nothing() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(9, "abc")])
    result = simulate(trace, make_scenario(reuse=False), warmup_requests=1)
    assert result.timeline.hit_tokens["hbm"].tolist() == [0]


def test_a_trace_of_history_alone_has_no_rows() -> None:
    result = simulate(make_trace(TWICE), make_scenario(), warmup_requests=99)
    assert len(result.timeline.ttft_s) == 0


def test_the_most_recent_blocks_stay_and_the_last_keeps_its_head() -> None:
    # atoms of 2, 3 and 4 blocks, touched 0, 1, 2, 0: 0 and 2 fit whole, of 1 its first block
    weight = ints([2, 3, 4])
    assert most_recent(ints([0, 1, 2, 0]), weight, 7) == [(1, 1), (2, 4), (0, 2)]
    assert most_recent(ints([0, 1, 2, 0]), weight, 6) == [(2, 4), (0, 2)]
    assert most_recent(ints([]), weight, 6) == []
    assert most_recent(ints([0]), weight, 0) == []


def test_what_exceeds_the_context_limit_is_refused_and_counted() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(1, "abcdef", output=1), Ask(2, "abcx", output=20)])
    kept, refused = within_limit(trace, 60)
    assert refused == 1
    assert kept.request_key.tolist() == [0, 2]
    # abc, then x: new dense ids
    assert kept.run_start.tolist() == [0, 0]
    assert kept.run_blocks.tolist() == [3, 4]
    assert kept.distinct_blocks == 4
    assert within_limit(trace, 61) == (trace, 0)


def test_a_refused_first_request_leaves_arrivals_from_zero() -> None:
    kept, _ = within_limit(make_trace([Ask(0, prompt=99), Ask(5), Ask(6)]), 10)
    assert kept.arrived_at_ns.tolist() == [0, 10**9]
    assert within_limit(make_trace([Ask(0, prompt=99)]), 10)[0].requests == 0


def test_broken_lengths_do_not_size_a_fleet() -> None:
    # as in the test of the size: 3 instances; rows that no HBM holds change nothing
    asks = [Ask(50.0 * index, prompt=10_000) for index in range(21)]
    trace = make_trace(asks)
    roomy = Small(group_cache_bytes=1e6)
    for column in ("prompt_tokens", "output_tokens"):
        lengths = getattr(trace, column).copy()
        lengths[7] = 10**15
        broken = replace(trace, **{column: lengths})
        assert size_fleet(broken, roomy, 0.7) == 3
    assert size_fleet(trace, roomy, 0.7, max_tokens=9_999) == 1
    everything = replace(trace, prompt_tokens=np.full(21, 10**15))
    assert size_fleet(everything, roomy, 0.7) == 1


def test_unlimited_hbm_takes_every_length_into_the_size() -> None:
    asks = [Ask(50.0 * index, prompt=10_000) for index in range(21)]
    assert size_fleet(make_trace(asks), Small(group_cache_bytes=UNLIMITED), 0.7) == 3
