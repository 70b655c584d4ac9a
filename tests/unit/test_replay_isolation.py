"""Long prompts kept apart: queues and instances of their own, throttles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.replay.engine import simulate
from kvtrace.replay.scenario import IsolationSpec
from tests.unit.replay_cases import Ask, make_scenario, make_trace

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
