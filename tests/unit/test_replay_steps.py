"""Engine steps and the moment of lookup, by hand.

Blocks of 10 tokens, 2 B of KV per token, 0.01 s of prefill per token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from kvtrace.replay.engine import simulate
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from tests.unit.replay_cases import Ask, FlatStep, links, make_scenario, make_trace, pool_tier

FAST = 1e15


@dataclass
class Shared:
    """A start costs 1 s a step, a token 0.01 s; `calls` counts what was priced."""

    calls: list[tuple[float, int]] = field(default_factory=list)

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        return 0.0

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        self.calls.append((new_tokens, steps))
        return (1.0 if is_start else 0.0) + 0.01 * new_tokens + work_s


def chunked(tokens: int = 100, **changes: object) -> Scenario:
    return make_scenario(prefill_chunk_tokens=tokens, step=Shared(), **changes)


def ttft(result: ReplayResult) -> list[float]:
    values: list[float] = result.timeline.ttft_s.tolist()
    return values


def test_waiting_prompts_share_one_step_and_its_overhead() -> None:
    # The first starts alone: 1 + 0.1. The other two share 1.1 .. 1.1 + 1 + 0.3 + 0.5.
    trace = make_trace([Ask(0, prompt=10), Ask(0.1, prompt=30), Ask(0.2, prompt=50)])
    result = simulate(trace, chunked())
    assert ttft(result) == pytest.approx([1.1, 1.1 + 1.8 - 0.1, 1.1 + 1.8 - 0.2])
    assert result.timeline.queue_s.tolist() == pytest.approx([0.0, 1.0, 0.9])
    assert result.timeline.prefill_s.tolist() == pytest.approx([1.1, 1.8, 1.8])
    assert result.prefill_utilisation == pytest.approx(1.0)


def test_members_share_the_seconds_of_their_step_by_price() -> None:
    # single prices 0.1; 0.3 and 0.5 of the second step's 1.8 s
    trace = make_trace([Ask(0, prompt=10), Ask(0.1, prompt=30), Ask(0.2, prompt=50)])
    timeline = simulate(trace, chunked()).timeline
    assert timeline.gpu_busy_s.tolist() == pytest.approx([1.1, 1.8 * 3 / 8, 1.8 * 5 / 8])
    assert timeline.recompute_s.tolist() == pytest.approx([0.1, 0.3, 0.5])


def test_a_step_takes_no_more_than_its_tokens() -> None:
    # 60 + 40 of the third fit; its other 20 follow in a step without a start: + 0.2
    trace = make_trace([Ask(0, prompt=10), Ask(0.1, prompt=60), Ask(0.2, prompt=60)])
    result = simulate(trace, chunked())
    assert ttft(result) == pytest.approx([1.1, 1.1 + 2.0 - 0.1, 1.1 + 2.0 + 0.2 - 0.2])
    # the third began with the second
    assert result.timeline.queue_s.tolist() == pytest.approx([0.0, 1.0, 0.9])


def test_the_rest_of_a_long_prompt_shares_its_last_step() -> None:
    # 250 tokens: two full steps (1 + 2 s) as one event, then 50 beside another's 30 (1 + 0.8)
    scenario = chunked()
    trace = make_trace([Ask(0, prompt=250), Ask(0.1, prompt=30)])
    result = simulate(trace, scenario)
    assert isinstance(scenario.step, Shared)
    assert scenario.step.calls == [(200, 2), (80, 1)]
    assert ttft(result) == pytest.approx([4.8, 4.7])


def test_a_long_prompt_alone_pays_its_overhead_once() -> None:
    result = simulate(make_trace([Ask(0, prompt=250)]), chunked())
    assert ttft(result) == pytest.approx([1.0 + 2.5])


def test_a_prompt_of_exactly_one_step_is_one_step() -> None:
    scenario = chunked()
    simulate(make_trace([Ask(0, prompt=100)]), scenario)
    assert isinstance(scenario.step, Shared)
    assert scenario.step.calls == [(100, 1)]


def test_a_prompt_waits_for_the_blocks_that_the_step_computes() -> None:
    # x runs until 1.1. abc and abd could share a step, but ab is being computed: abd goes next and
    # computes d alone. q behind it stays in line, and shares that step.
    trace = make_trace([Ask(0, "x"), Ask(0.1, "abc"), Ask(0.2, "abd"), Ask(0.3, "q")])
    result = simulate(trace, chunked())
    assert result.timeline.hit_tokens["hbm"].tolist() == [0, 0, 20, 0]
    end = 1.1 + 1.3
    assert ttft(result) == pytest.approx([1.1, end - 0.1, end + 1.2 - 0.2, end + 1.2 - 0.3])


def test_a_loaded_request_waits_for_blocks_that_the_step_computes() -> None:
    # Half a second of pull each: abc and abce both have ab from the pool before x ends at 21.1.
    # Then abc computes c until 22.2, and abce, which could share that step, waits to find c.
    scenario = chunked(
        instances=2,
        routing="round_robin",
        tiers=(pool_tier(pull_latency_s=0.5),),
        links=links(pcie=FAST, nic=FAST, pool=FAST),
    )
    asks = ["ab", "x", "-", "abc", "+", "abce"]
    times = [0, 20, 20.1, 20.2, 20.3, 20.4]
    trace = make_trace([Ask(at, ask) for at, ask in zip(times, asks, strict=True)])
    result = simulate(trace, scenario)
    assert result.timeline.instance.tolist() == [0, 1, 0, 1, 0, 1]
    assert result.timeline.hit_tokens["pool"].tolist() == [0, 0, 0, 20, 0, 20]
    assert result.timeline.hit_tokens["hbm"].tolist() == [0, 0, 0, 0, 0, 10]
    assert ttft(result)[3::2] == pytest.approx([22.2 - 20.2, 23.3 - 20.4])


def test_decoders_ride_along_at_the_pace_of_the_steps() -> None:
    # a decodes from 1.1 on, 0.1 s a token; at 1.5 (4 tokens) 250 tokens come: two steps take
    # 1 + 2 + 2 · 0.1, the last 0.5 + 0.1, one token each; 3 more tokens
    trace = make_trace([Ask(0, "a", output=11), Ask(1.5, prompt=250)])
    result = simulate(trace, chunked(decode=FlatStep(0.1)))
    assert result.timeline.ttft_s[1] == pytest.approx(3.8)
    assert result.timeline.gpu_busy_s[1] == pytest.approx(3.5)
    assert result.timeline.e2e_s[0] == pytest.approx(1.5 + 3.8 + 0.3)


def test_a_sync_load_shares_its_step_but_waits_for_an_empty_one() -> None:
    # In turn on instance 1: q (busy till 11.1), y (nothing to load), abcd (3 blocks to load over a
    # 30 B/s link: 2 s). y's step is not held up; then the GPU waits for the load, and z, behind it,
    # shares abcd's step.
    scenario = chunked(
        instances=2,
        routing="round_robin",
        load_mode="sync",
        tiers=(pool_tier(),),
        links=links(pcie=FAST, nic=30.0, pool=FAST),
    )
    asks = ["abc", "q", "1", "y", "2", "abcd", "3", "z"]
    times = [0, *(10 + index / 10 for index in range(7))]
    trace = make_trace([Ask(at, ask) for at, ask in zip(times, asks, strict=True)])
    result = simulate(trace, scenario)
    assert result.timeline.hit_tokens["pool"][5] == 30
    started = 11.1 + 1.1
    assert result.timeline.ttft_s[3] == pytest.approx(started - 10.2)
    # the write of y (20 B) takes half of the link while it lasts
    done = started + 2.0 + 20 / 30 + 1.2
    assert result.timeline.ttft_s[5] == pytest.approx(done - 10.4)
    assert result.timeline.ttft_s[7] == pytest.approx(done - 10.6)
    assert result.timeline.gpu_busy_s[5] == pytest.approx(2 + 20 / 30 + 0.6)


# ------------------------------------------------------------------ the moment of lookup

ABCA = [Ask(0, "abc"), Ask(0.001, "def"), Ask(0.002, "ghi"), Ask(0.003, "abc")]
"""HBM holds 1.2 of these; the first has long been written when the last is taken."""


def pooled(**changes: object) -> Scenario:
    changes = {
        "hbm_capacity_bytes": 2.0 * 36,
        "tiers": (pool_tier(),),
        "links": links(pcie=FAST, nic=FAST, pool=FAST),
        **changes,
    }
    return make_scenario(**changes)


@pytest.mark.parametrize(("moment", "found"), [("on_schedule", 29), ("on_arrival", 0)])
@pytest.mark.parametrize("chunk", [0, 100])
def test_a_request_that_queued_is_looked_up_again_when_it_is_taken(
    moment: str, found: int, chunk: int
) -> None:
    scenario = pooled(lookup_moment=moment, prefill_chunk_tokens=chunk)
    result = simulate(make_trace(ABCA), scenario)
    assert result.timeline.hit_tokens["pool"].tolist() == [0, 0, 0, found]
    spaced = [replace(ask, at_s=5.0 * index) for index, ask in enumerate(ABCA)]
    assert simulate(make_trace(spaced), scenario).timeline.hit_tokens["pool"][3] == 29


def test_a_second_lookup_goes_on_from_the_run_that_is_loaded() -> None:
    # Instance 1 computes from 9.9 to 13. abc arrives there at 10.1 and loads a; abcd finds that a
    # in HBM. Instance 0 computes bcd from 11 to 11.35. At 13 both ask again: bc, and bcd.
    scenario = make_scenario(
        instances=2,
        routing="round_robin",
        tiers=(pool_tier(lookup_s=0.05),),
        links=links(pcie=FAST, nic=FAST, pool=FAST),
    )
    busy = [Ask(9.9, prompt=310), Ask(10, prompt=100)]
    queued = [Ask(10.1, "abc"), Ask(10.2, "abcd"), Ask(10.3, "abcd")]
    result = simulate(make_trace([Ask(0, "a"), *busy, *queued]), scenario)
    timeline = result.timeline
    assert timeline.instance.tolist() == [0, 1, 0, 1, 0, 1]
    assert timeline.hit_tokens["hbm"].tolist() == [0, 0, 0, 0, 10, 10]
    assert timeline.hit_tokens["pool"].tolist() == [0, 0, 0, 10 + 19, 0, 29]
    assert timeline.lookup_s.tolist() == pytest.approx([0.05, 0, 0, 0.1, 0.1, 0.1])
    assert timeline.moved_bytes.tolist() == [0, 0, 0, 20 + 38, 0, 58]


def test_a_second_lookup_that_finds_nothing_holds_the_step_up() -> None:
    # b queues 0.2 s behind a, then its step waits 0.05 s for the answer; the first was hidden
    scenario = make_scenario(
        tiers=(pool_tier(lookup_s=0.05),), links=links(pcie=FAST, nic=FAST, pool=FAST)
    )
    result = simulate(make_trace([Ask(0, "xyz"), Ask(0.15, "b")]), scenario)
    assert result.timeline.lookup_s.tolist() == pytest.approx([0.05, 0.1])
    assert ttft(result) == pytest.approx([0.35, 0.35 + 0.05 + 0.1 - 0.15])
    assert result.timeline.queue_s[1] == pytest.approx(0.2 - 0.05)


# ------------------------------------------------------------------ load


def test_a_fleet_with_more_work_than_time_is_overloaded() -> None:
    # 100 requests of 1 s in 9.9 s of arrivals
    trace = make_trace([Ask(i / 10, prompt=100) for i in range(100)])
    result = simulate(trace, make_scenario())
    assert result.offered_load == pytest.approx(100 / 9.9)
    assert result.is_overloaded
    calm = simulate(trace, make_scenario(instances=20))
    assert calm.offered_load == pytest.approx(100 / 9.9 / 20)
    assert not calm.is_overloaded


def test_offered_load_counts_decode_at_the_fullest_batch() -> None:
    # 11 requests in 10 s, 0.1 s prefill; 100 more tokens each at 0.1 s a step, HBM for two at the
    # mean context (10 + 50.5): 11 · (0.1 + 100 · 0.1 / 2) / 10
    scenario = make_scenario(hbm_capacity_bytes=2.0 * 121)
    trace = make_trace([Ask(float(i), "abcdefghijk"[i], output=101) for i in range(11)])
    assert simulate(trace, scenario).offered_load == pytest.approx(11 * 5.1 / 10)


def test_a_queue_that_grows_shows_overload_without_work() -> None:
    # HBM for one request, which decodes for 9 s; one a second arrives, so the last waits 72 s. Two
    # sequences would do half of the work each, so the offered load is not what tells.
    scenario = make_scenario(hbm_capacity_bytes=2.0 * 110, decode=FlatStep(0.1))
    trace = make_trace([Ask(float(i), prompt=10, output=91) for i in range(10)])
    result = simulate(trace, scenario)
    assert result.timeline.queue_s[-1] == pytest.approx(9 * 8.1)
    assert result.is_overloaded


def test_a_trace_that_arrives_at_once_offers_no_rate() -> None:
    result = simulate(make_trace([Ask(0, prompt=9), Ask(0, prompt=9)]), make_scenario())
    assert (result.offered_load, result.is_overloaded) == (None, False)


def test_a_deterministic_queue_waits_as_md1_says() -> None:
    # Poisson arrivals at 0.7 of the capacity: mean wait = rho / (2 (1 - rho)) services = 1.1667
    gaps = np.random.default_rng(7).exponential(1.0 / 0.7, size=40_000)
    trace = make_trace([Ask(float(at), prompt=100) for at in np.cumsum(gaps)])
    queue_s = simulate(trace, make_scenario()).timeline.queue_s
    assert queue_s.mean() == pytest.approx(0.7 / (2 * 0.3), rel=0.05)


def test_a_broken_length_costs_no_loop_per_chunk() -> None:
    # 10^9 prompt and output tokens: a handful of prices, not one per chunk or token
    scenario = chunked(8192)
    rows = [Ask(i / 10, prompt=100, output=10) for i in range(50)]
    rows[20] = replace(rows[20], prompt=10**9, output=10**9)
    result = simulate(make_trace(rows), scenario)
    assert isinstance(scenario.step, Shared)
    assert len(scenario.step.calls) <= 2 * len(rows)
    assert result.timeline.prefill_s[20] > 1e7
    assert result.is_overloaded
