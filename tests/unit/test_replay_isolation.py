"""Long prompts kept apart: queues and instances of their own, throttles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.replay.engine import simulate
from kvtrace.replay.scenario import IsolationSpec, Scenario, StageSpec, ThrottleSpec, TierSpec
from kvtrace.schema.arrays import FloatArray
from tests.unit.replay_cases import (
    UNLIMITED,
    Ask,
    PerToken,
    links,
    make_scenario,
    make_trace,
)

LONG = IsolationSpec(50)


def test_a_short_prompt_takes_the_next_step_before_a_long_one() -> None:
    # Steps of 20 tokens, 0.2 s each. Together: the long prompt computes 80 tokens until 0.8, its
    # last 20 until 1.0, then the short one until 1.1. Apart: 20 of the long until 0.2, then the
    # short one and 10 of the long until 0.4, 60 more until 1.0 and the last 10 until 1.1.
    trace = make_trace([Ask(0, prompt=100), Ask(0.05, prompt=10)])
    together = make_scenario(prefill_chunk_tokens=20)
    assert simulate(trace, together).timeline.ttft_s == pytest.approx([1.0, 1.05])
    apart = replace(together, isolation=LONG)
    assert simulate(trace, apart).timeline.ttft_s == pytest.approx([1.1, 0.35])


def test_a_short_prompt_of_several_steps_holds_the_long_one_up() -> None:
    # The short one of 30 tokens fills the step until 0.4 and shares the next with 10 of the long:
    # 0.6. The long one has computed 30 then; 60 more until 1.2 and the last 10 until 1.3.
    trace = make_trace([Ask(0, prompt=100), Ask(0.05, prompt=30)])
    apart = make_scenario(prefill_chunk_tokens=20, isolation=LONG)
    assert simulate(trace, apart).timeline.ttft_s == pytest.approx([1.3, 0.55])


def test_long_prompts_stay_in_their_order() -> None:
    # 20 until 0.2, ten with the short one until 0.4, 60 until 1.0; the last 10 share their step
    # with 10 of the second long prompt (1.2), whose other 50 take 0.5 s.
    asks = [Ask(0, prompt=100), Ask(0.05, prompt=10), Ask(0.1, prompt=60)]
    apart = make_scenario(prefill_chunk_tokens=20, isolation=LONG)
    assert simulate(make_trace(asks), apart).timeline.ttft_s == pytest.approx([1.2, 0.35, 1.6])


def test_short_prompts_that_arrive_later_go_first_when_all_wait() -> None:
    # One step a prompt. The first runs until 0.3. In order of arrival the long one then runs until
    # 0.9 and the short one until 1.0; apart the short one until 0.4 and the long one until 1.0.
    trace = make_trace([Ask(0, prompt=30), Ask(0.1, prompt=60), Ask(0.2, prompt=10)])
    together = make_scenario()
    assert simulate(trace, together).timeline.ttft_s == pytest.approx([0.3, 0.8, 0.8])
    apart = replace(together, isolation=LONG)
    assert simulate(trace, apart).timeline.ttft_s == pytest.approx([0.3, 0.9, 0.2])
    # Steps of 60: the short one and 50 of the long one until 0.9, its last 10 until 1.0.
    chunked = replace(apart, prefill_chunk_tokens=60)
    assert simulate(trace, chunked).timeline.ttft_s == pytest.approx([0.3, 0.9, 0.7])


def test_own_queues_change_nothing_where_no_prompt_is_long() -> None:
    rng = np.random.default_rng(7)
    asks = [
        Ask(float(at), prompt=int(tokens), output=5)
        for at, tokens in zip(np.cumsum(rng.random(60)), rng.integers(1, 90, 60), strict=True)
    ]
    trace = make_trace(asks)
    plain = make_scenario(prefill_chunk_tokens=20, instances=2)
    apart = replace(plain, isolation=IsolationSpec(1000))
    assert (
        simulate(trace, apart).timeline.ttft_s.tolist()
        == simulate(trace, plain).timeline.ttft_s.tolist()
    )


def by_pool(**changes: object) -> Scenario:
    """Prompts of other instances come from a pool over a NIC of 100 B/s for each instance."""
    stage = (StageSpec("pull", ("nic",), 0.0),)
    pool = TierSpec("pool", "shared", UNLIMITED, 0.0, stage, ())
    base = {"instances": 2, "routing": "round_robin", "tiers": (pool,), "links": links(nic=100.0)}
    return make_scenario(**{**base, **changes})


@pytest.mark.parametrize(
    ("changes", "pull_s"),
    [
        # 10 tokens of 2 B: 20 B alone on 100 B/s; two at once share them.
        ({}, [0.2, 0.4, 0.4]),
        # No move gets more than 10 B/s, however many there are.
        ({"request_bytes_per_s": 10.0}, [2.0, 2.0, 2.0]),
        # 60 B/s: one alone gets them, two at once 50 each by the link itself.
        ({"request_bytes_per_s": 60.0}, [1 / 3, 0.4, 0.4]),
        # All loads together get 10 B/s on the NIC of an instance.
        ({"throttles": (ThrottleSpec("nic", 10.0),)}, [2.0, 4.0, 4.0]),
        ({"throttles": (ThrottleSpec("nic", 10.0), ThrottleSpec("nic", 5.0))}, [4.0, 8.0, 8.0]),
        # Writes are held back, loads are not.
        ({"throttles": (ThrottleSpec("nic", 10.0, "writes"),)}, [0.2, 0.4, 0.4]),
    ],
)
def test_throttles_hold_loads_back(changes: dict[str, object], pull_s: list[float]) -> None:
    # The instances take turns: a, b and c are computed on 0, then loaded on 1 (requests 5, 7, 9).
    asks = [
        *(Ask(at, label) for at, label in enumerate("apbqcr")),
        *(Ask(20, "z"), Ask(20, "a", 11), Ask(60, "y"), Ask(60, "b", 11)),
        *(Ask(60, "x"), Ask(60, "c", 11)),
    ]
    timeline = simulate(make_trace(asks), by_pool(**changes)).timeline
    assert timeline.pull_s[[7, 9, 11]] == pytest.approx(pull_s)


TOKEN_S = 1e-4
TOKEN_BYTES = 320_000.0
SHORT = 1_000
LONG_CACHED, LONG_NEW = 6_250, 2_000
"""Cached: 2 GB of KV, 0.2 s at 10 GB/s; new: 0.2 s of prefill."""
CYCLES = 12


def classic(bytes_per_s: float, isolation: IsolationSpec | None) -> FloatArray:
    """TTFT of the short prompts: two instances, every 2 s two long prompts and two short ones.

    The KV of the long prompts is in the pool from the start; loads keep the GPU waiting.
    """
    block = 250
    cached = [[(turn, i) for i in range(LONG_CACHED // block)] for turn in range(2 * CYCLES)]
    asks = [Ask(0, blocks) for blocks in cached]
    for cycle in range(CYCLES):
        at = 100.0 + 2 * cycle
        for turn in (2 * cycle, 2 * cycle + 1):
            asks.append(Ask(at, cached[turn], LONG_CACHED + LONG_NEW))
        asks += [Ask(at, prompt=SHORT), Ask(at + 0.05, prompt=SHORT)]
    stage = (StageSpec("pull", ("nic",), 0.0),)
    scenario = make_scenario(
        instances=2,
        routing="round_robin",
        kv_bytes_per_token=TOKEN_BYTES,
        hbm_capacity_bytes=TOKEN_BYTES * (LONG_CACHED + LONG_NEW),
        prefill=PerToken(TOKEN_S),
        tiers=(TierSpec("pool", "shared", UNLIMITED, 0.0, stage, ()),),
        links=links(nic=bytes_per_s),
        load_mode="sync",
        isolation=isolation,
    )
    trace = make_trace(asks, block_size=block)
    result = simulate(trace, scenario, warmup_requests=len(cached))
    is_short = trace.prompt_tokens[len(cached) :] == SHORT
    assert (result.timeline.hit_tokens["pool"][~is_short] == LONG_CACHED).all()
    return np.asarray(result.timeline.ttft_s[is_short], dtype=np.float64)


def test_long_prompts_that_hurt_short_ones_are_cured_by_isolation_and_not_by_a_link() -> None:
    # Each instance loads a long prompt (2 GB at 10 GB/s: 0.2 s), computes 2 000 tokens of it
    # (0.2 s), and then a short prompt (0.1 s): those that came with it see 0.5 s, those 0.05 s
    # later 0.45 s. A link of twice the rate spares 0.1 s, one of a thousand times 0.2 s.
    # With an instance for long prompts the first short one takes 0.1 s, the second waits 0.05 s.
    def p99_s(bytes_per_s: float, isolation: IsolationSpec | None = None) -> float:
        return float(np.quantile(classic(bytes_per_s, isolation), 0.99))

    assert p99_s(10e9) == pytest.approx(0.5)
    assert p99_s(20e9) == pytest.approx(0.4)
    assert p99_s(10e12) == pytest.approx(0.3, abs=0.001)
    assert p99_s(10e9, IsolationSpec(6_000, long_instances=1)) == pytest.approx(0.15)
