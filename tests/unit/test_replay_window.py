"""Windows, arrivals and fleet sizes, by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from kvtrace.errors import ModelError
from kvtrace.replay.window import (
    peak_window,
    peak_window_with_history,
    size_fleet,
    slice_requests,
    spread_arrivals,
)
from kvtrace.reuse.uncached import uncached_tokens
from tests.unit.replay_cases import Ask, FlatStep, PerToken, make_trace


def test_the_peak_window_is_the_one_with_most_prompt_tokens() -> None:
    trace = make_trace(
        [Ask(0, prompt=50), Ask(10, prompt=30), Ask(19, prompt=30), Ask(20, prompt=5), Ask(99)]
    )
    peak = peak_window(trace, 10)
    # windows: [0, 10) 50, [10, 20) 60, [19, 29) 35: request 20 is just outside the second
    assert peak.prompt_tokens.tolist() == [30, 30]
    assert peak.arrived_at_ns.tolist() == [0, 9_000_000_000]
    assert peak.request_key.tolist() == [1, 2]


def test_broken_lengths_overflow_no_sum() -> None:
    trace = make_trace([Ask(10.0 * index, prompt=2**61) for index in range(30)])
    assert peak_window(trace, 15).request_key.tolist() == [0, 1]


def test_of_equal_windows_the_first_wins() -> None:
    trace = make_trace([Ask(0, prompt=5), Ask(50, prompt=5), Ask(100, prompt=5)])
    assert peak_window(trace, 10).request_key.tolist() == [0]


def test_a_window_takes_all_requests_of_its_first_instant() -> None:
    trace = make_trace([Ask(0, prompt=1), Ask(50, prompt=5), Ask(50, prompt=5), Ask(100)])
    assert peak_window(trace, 10).request_key.tolist() == [1, 2]


@pytest.mark.parametrize("has_clock", [True, False])
def test_a_trace_that_is_shorter_or_has_no_clock_comes_back_whole(has_clock: bool) -> None:
    times = (0, 5) if has_clock else (0, 0)
    trace = make_trace([Ask(at, prompt=5) for at in times], has_clock=has_clock)
    assert peak_window(trace) is trace


def test_an_empty_trace_is_its_own_peak() -> None:
    trace = make_trace([])
    assert peak_window(trace) is trace
    assert spread_arrivals(trace, 1) is trace


def test_a_slice_has_dense_ids_of_its_own() -> None:
    asks = [Ask(0, "abcd"), Ask(1, "abxy"), Ask(2, "abcz"), Ask(3, "q"), Ask(4, "abxy")]
    part = slice_requests(make_trace(asks), 1, 5)
    expected = make_trace([replace(ask, at_s=ask.at_s - 1) for ask in asks[1:]])
    for name in ("arrived_at_ns", "prompt_tokens", "run_offset", "run_start", "run_blocks"):
        assert getattr(part, name).tolist() == getattr(expected, name).tolist()
    assert part.distinct_blocks == expected.distinct_blocks


def test_a_slice_keeps_requests_without_blocks() -> None:
    asks = [Ask(0, "ab"), Ask(1, prompt=3), Ask(2, "b"), Ask(3, prompt=4)]
    part = slice_requests(make_trace(asks), 1, 4)
    assert part.run_offset.tolist() == [0, 0, 1, 1]
    assert (part.run_start.tolist(), part.run_blocks.tolist()) == ([0], [1])


def test_runs_that_become_consecutive_are_joined() -> None:
    # in the whole trace ab and xy are apart; in the slice they come first together
    part = slice_requests(make_trace([Ask(0, "abcd"), Ask(1, "abxy")]), 1, 2)
    assert (part.run_start.tolist(), part.run_blocks.tolist()) == ([0], [4])


def test_a_slice_without_blocks_or_requests_is_empty() -> None:
    trace = make_trace([Ask(0, "ab"), Ask(1, prompt=3)])
    assert slice_requests(trace, 1, 2).distinct_blocks == 0
    assert slice_requests(trace, 1, 1).requests == 0


def test_coarse_arrivals_spread_inside_their_resolution_and_keep_their_order() -> None:
    step = 3_000_000_000
    trace = make_trace([Ask(3.0 * (i // 50), prompt=i) for i in range(200)], resolution_ns=step)
    spread = spread_arrivals(trace, 7)
    arrived = spread.arrived_at_ns
    assert arrived[0] == 0
    assert (np.diff(arrived) >= 0).all()
    assert len(np.unique(arrived)) > 190
    # all are shifted by the offset of the first; each stays inside its own 3 s
    offset = arrived - trace.arrived_at_ns
    assert offset.min() > -step
    assert offset.max() < step
    assert spread.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert spread.clock_resolution_ns == 1


def test_the_seed_decides_the_spread() -> None:
    trace = make_trace([Ask(0), Ask(0), Ask(1), Ask(1)], resolution_ns=1_000_000_000)
    same = [spread_arrivals(trace, 3).arrived_at_ns.tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != spread_arrivals(trace, 4).arrived_at_ns.tolist()


def test_fine_arrivals_and_orders_stay_as_they_are() -> None:
    fine = make_trace([Ask(0), Ask(1)], resolution_ns=100_000_000)
    assert spread_arrivals(fine, 1) is fine
    order = make_trace([Ask(0), Ask(0)], has_clock=False, resolution_ns=10**9)
    assert spread_arrivals(order, 1) is order


@dataclass(frozen=True, slots=True)
class Small:
    """0.01 s per token, 0.1 s a step whatever the batch, HBM for 1 000 tokens."""

    prefill: PerToken = field(default_factory=PerToken)
    decode: FlatStep = field(default_factory=FlatStep)
    kv_bytes_per_token: float = 2.0
    group_cache_bytes: float = 2000.0
    pp: int = 1


def test_a_fleet_is_sized_by_prefill_over_the_busiest_hour() -> None:
    # 1 000 s of window, 21 requests of 100 s prefill each: 2 100 s of work; at 0.7: 2100 / 700 = 3
    asks = [Ask(50.0 * i, prompt=10_000) for i in range(21)]
    roomy = Small(group_cache_bytes=1e6)
    assert size_fleet(make_trace(asks), roomy, 0.7) == 3
    assert size_fleet(make_trace(asks), roomy, 0.69) == 4


def test_decode_adds_its_cheapest_time() -> None:
    # 11 requests over 100 s: prompt 90, output 20: context 100, so HBM holds 10.
    # prefill 11 · 0.9 = 9.9 s; decode 11 · 19 · 0.1 / 10 = 2.09 s; 11.99 / (0.1 · 100) → 2
    asks = [Ask(10.0 * i, prompt=90, output=20) for i in range(11)]
    assert size_fleet(make_trace(asks), Small(), 0.1) == 2
    assert size_fleet(make_trace(asks, output_known=False), Small(), 0.1) == 1
    assert size_fleet(make_trace([replace(a, output=1) for a in asks]), Small(), 0.1) == 1


def test_a_trace_without_duration_takes_one_instance() -> None:
    assert size_fleet(make_trace([Ask(0, prompt=99)]), Small(), 0.7) == 1
    assert size_fleet(make_trace([]), Small(), 0.7) == 1


@pytest.mark.parametrize("target", [0.0, 1.01, -1.0])
def test_a_target_outside_its_range_is_refused(target: float) -> None:
    with pytest.raises(ModelError) as caught:
        size_fleet(make_trace([Ask(0)]), Small(), target)
    assert caught.value.code == "KVT-R002"


def test_the_peak_is_that_of_what_is_left_to_compute() -> None:
    # By prompt tokens the second hour is busier, 200 against 150; but it only repeats itself.
    again = [Ask(4000 + index, "abcdefghij", prompt=100) for index in range(2)]
    fresh = [Ask(index, letters, prompt=50) for index, letters in enumerate(("klmno", "pqrst"))]
    trace = make_trace([*fresh, Ask(2, "abcde", prompt=50), *again])
    assert peak_window_with_history(trace, 3600).first == 3
    work = uncached_tokens(trace, capacity_blocks=100)
    # abcde is held, so of the first repetition 50 tokens are left; of the second the last token.
    assert work.tolist() == [50, 50, 50, 50, 1]
    windowed = peak_window_with_history(trace, 3600, work_tokens=work)
    assert (windowed.first, windowed.trace.requests) == (0, 3)


def test_what_a_small_cache_lost_is_computed_again() -> None:
    # Ten blocks: abcde, klmno, then abcde again: it lies at depth 6 to 10 of the stack.
    trace = make_trace([Ask(at, text, prompt=50) for at, text in enumerate(("abcde", "klmno") * 2)])
    assert uncached_tokens(trace, capacity_blocks=10).tolist() == [50, 50, 1, 1]
    assert uncached_tokens(trace, capacity_blocks=8).tolist() == [50, 50, 20, 20]
    assert uncached_tokens(trace, capacity_blocks=5).tolist() == [50, 50, 50, 50]
