"""Summaries of hand-made results."""

from __future__ import annotations

import numpy as np
import pytest

from kvtrace.replay.engine import simulate
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import (
    by_kv_bucket,
    by_prompt_bucket,
    gpu_seconds,
    hit_costs,
    over_time,
    percentiles,
    top_regret,
)
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import Ask, links, make_scenario, make_trace, pool_tier


def replayed(nic: float, **changes: object) -> tuple[RequestTrace, ReplayResult]:
    """abc is computed, then loaded twice: by abcd (60 B) and by a request with a long own part."""
    trace = make_trace([Ask(0, "abc"), Ask(100, "abcd"), Ask(300, "abcuvwxyz")])
    scenario = make_scenario(
        instances=3,
        routing="round_robin",
        tiers=(pool_tier(),),
        links=links(pcie=1e15, nic=nic, pool=1e15),
        **changes,
    )
    return trace, simulate(trace, scenario)


def test_percentiles_are_linear_between_order_statistics() -> None:
    # 0 .. 10: p50 = 5, p90 = 9; p99 withheld below 1 000 values, 9.9 when asked for
    values = np.arange(11, dtype=np.float64)
    assert percentiles(values) == (5.0, 5.0, 9.0, None)
    assert percentiles(values, p99_needs=11) == pytest.approx((5.0, 5.0, 9.0, 9.9))


def test_percentiles_leave_unknown_values_out() -> None:
    # 1 and 3: p90 lies at 0.9 of the way
    assert percentiles(np.array([1.0, np.nan, 3.0])) == pytest.approx((2.0, 2.0, 2.8, None))
    assert percentiles(np.array([np.nan])) == (None, None, None, None)


def test_hits_that_move_slower_than_they_compute_are_net_negative() -> None:
    # 60 B at 40 B/s = 1.5 s against 0.3 s to recompute, twice
    _, result = replayed(40.0)
    costs = hit_costs(result)
    assert (costs.hits, costs.net_negative_hits) == (2, 2)
    assert (costs.net_negative_bytes, costs.moved_bytes) == (120.0, 120.0)
    assert costs.lost_s == pytest.approx(2.4)
    assert costs.gained_s == 0.0
    assert costs.gpu_seconds_freed == pytest.approx(0.6)


def test_hits_that_move_faster_gain_time() -> None:
    # 60 B at 600 B/s = 0.1 s against 0.3 s
    _, result = replayed(600.0)
    costs = hit_costs(result)
    assert (costs.hits, costs.net_negative_hits, costs.net_negative_bytes) == (2, 0, 0.0)
    assert costs.lost_s == 0.0
    assert costs.gained_s == pytest.approx(0.4)


def test_sync_loads_free_less_of_the_gpu() -> None:
    _, result = replayed(600.0, load_mode="sync")
    assert hit_costs(result).gpu_seconds_freed == pytest.approx(0.6 - 0.2)
    # 0.3 computed; 0.1 waited + 0.1; 0.1 waited + 0.6
    assert gpu_seconds(result) == pytest.approx(0.3 + 0.2 + 0.7)


def test_rows_by_prompt_length_stand_on_powers_of_two() -> None:
    trace, result = replayed(40.0)
    rows = by_prompt_bucket(trace, result)
    # prompts: 30, 40, 90
    assert [(row.bucket, row.requests, row.hits) for row in rows] == [
        (16, 1, 0),
        (32, 1, 1),
        (64, 1, 1),
    ]
    first, second, _ = rows
    assert (first.moved_bytes_mean, first.move_p50_s, first.net_negative_share) == (None,) * 3
    assert second.moved_bytes_mean == 60.0
    assert second.move_p50_s == pytest.approx(1.5)
    assert second.recompute_p90_s == pytest.approx(0.3)
    assert (second.net_negative_hits, second.net_negative_share) == (1, 1.0)
    assert second.ttft_p50_s == pytest.approx(1.6)
    assert second.ttft_p99_s is None


def test_rows_by_kv_bytes_count_bytes() -> None:
    trace, result = replayed(40.0)
    # 60, 80 and 180 B
    assert [row.bucket for row in by_kv_bucket(trace, result)] == [32, 64, 128]


def test_an_empty_prompt_has_a_bucket_of_its_own() -> None:
    trace = make_trace([Ask(0, prompt=0), Ask(1, prompt=1), Ask(2, prompt=3), Ask(3, prompt=4)])
    rows = by_prompt_bucket(trace, simulate(trace, make_scenario()))
    assert [row.bucket for row in rows] == [0, 1, 2, 4]


def test_slices_cover_the_span_by_arrival() -> None:
    trace, result = replayed(40.0)
    rows = over_time(trace, result, slices=3)
    assert [row.start_s for row in rows] == [0.0, 100.0, 200.0]
    assert [row.requests for row in rows] == [1, 1, 1]
    # the last arrival, on the far edge, is in the last slice: 30 of 90 tokens
    assert [row.hit_ratio_tokens for row in rows] == [0.0, 0.75, pytest.approx(1 / 3)]
    assert [row.moved_bytes for row in rows] == [0.0, 60.0, 60.0]


def test_an_empty_slice_knows_no_ratio() -> None:
    trace, result = replayed(40.0)
    row = over_time(trace, result, slices=6)[1]
    assert (row.requests, row.hit_ratio_tokens, row.ttft_p50_s) == (0, None, None)


def test_requests_of_one_instant_are_one_slice() -> None:
    trace = make_trace([Ask(0, prompt=10), Ask(0, prompt=10)])
    rows = over_time(trace, simulate(trace, make_scenario()))
    assert [(row.start_s, row.requests) for row in rows] == [(0.0, 2)]


def test_an_empty_trace_has_no_slices() -> None:
    trace = make_trace([])
    result = simulate(trace, make_scenario())
    assert over_time(trace, result) == []
    assert by_prompt_bucket(trace, result) == []
    assert hit_costs(result).hits == 0


def test_the_worst_losers_come_first() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(100, "abx"), Ask(300, "abcd"), Ask(500, "q")])
    scenario = make_scenario(
        instances=4,
        routing="round_robin",
        tiers=(pool_tier(),),
        links=links(pcie=1e15, nic=40.0, pool=1e15),
    )
    result = simulate(trace, scenario)
    rows = top_regret(trace, result)
    # abcd: 60 B, 1.5 - 0.3; abx: 40 B, 1.0 - 0.2
    assert [row.request for row in rows] == [2, 1]
    assert rows[0].regret_s == pytest.approx(1.2)
    assert (rows[0].prompt_tokens, rows[0].moved_bytes) == (40, 60.0)
    assert [row.request for row in top_regret(trace, result, n=1)] == [2]
