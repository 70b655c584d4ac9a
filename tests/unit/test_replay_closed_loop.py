"""Closed loop, by hand: turns wait for the turns before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.replay.closed_loop import ClosedLoop, think_seconds, turns_before
from kvtrace.replay.engine import simulate
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import Ask, PerToken, ints, make_scenario, make_trace

UNKNOWN = float("nan")


def sessions(asks: list[Ask], of: list[int]) -> RequestTrace:
    return replace(make_trace(asks), session=ints(of))


# Session 0 asks at 0, 3 and 20 s, session 1 at 1 s, a request of no session at 2 s.
LOGGED = sessions(
    [
        Ask(0, prompt=100),
        Ask(1, prompt=100),
        Ask(2, prompt=100),
        Ask(3, prompt=100),
        Ask(20, prompt=100),
    ],
    [0, 1, -1, 0, 0],
)


def test_turns_follow_the_turn_before_in_their_session() -> None:
    assert turns_before(LOGGED).tolist() == [-1, -1, -1, 0, 3]


def test_thinking_begins_when_the_logged_answer_has_ended() -> None:
    # 3 - 0 - 2 s; 20 - 3 s, since the end of the turn before is not known
    think = think_seconds(LOGGED, np.array([2.0, 9.0, 9.0, UNKNOWN, 1.0]))
    assert np.isnan(think[:3]).all()
    assert think[3:].tolist() == [1.0, 17.0]
    assert think_seconds(LOGGED, np.full(5, 50.0))[3:].tolist() == [0.0, 0.0]


def test_a_slow_fleet_gets_later_turns_later() -> None:
    # One instance, 2 s a prefill, think 1 s. 0: 0 to 2. 1: 2 to 4, 2: 4 to 6. The second turn comes
    # at 2 + 1 = 3 as logged and runs 6 to 8; the third comes at 8 + 1 = 9 and runs 9 to 11.
    loop = ClosedLoop(LOGGED, np.array([UNKNOWN, UNKNOWN, UNKNOWN, 1.0, 1.0]))
    assert (loop.openers, loop.after) == ([0, 1, 2], [3, -1, -1, 4, -1])
    result = simulate(LOGGED, make_scenario(prefill=PerToken(0.02)), loop=loop)
    assert loop.arrived_s == [0.0, 1.0, 2.0, 3.0, 9.0]
    assert result.timeline.ttft_s.tolist() == [2.0, 3.0, 4.0, 5.0, 2.0]
    assert (result.offered_load, result.is_overloaded) == (None, False)
    # Ten times as slow: nobody asks while the answer is awaited, so no turn queues behind its own.
    slow = ClosedLoop(LOGGED, loop_think(1.0))
    simulate(LOGGED, make_scenario(prefill=PerToken(0.2)), loop=slow)
    # 0: 0 to 20; 1 to 40; 2 to 60; the second turn comes at 21, runs 60 to 80; the third at 81.
    assert slow.arrived_s == [0.0, 1.0, 2.0, 21.0, 81.0]


def loop_think(seconds: float) -> np.ndarray:
    return np.array([UNKNOWN, UNKNOWN, UNKNOWN, seconds, seconds])


def test_decoding_is_waited_for() -> None:
    # prefill 1 s, then 4 more tokens of 0.1 s: the turn comes at 1.4 + 0.6 s
    trace = sessions([Ask(0, prompt=100, output=5), Ask(0.5, prompt=100, output=1)], [0, 0])
    loop = ClosedLoop(trace, np.array([UNKNOWN, 0.6]))
    result = simulate(trace, make_scenario(), loop=loop)
    assert loop.arrived_s[1] == pytest.approx(2.0)
    assert result.timeline.ttft_s[1] == pytest.approx(1.0)


def test_a_turn_of_the_history_is_not_waited_for() -> None:
    loop = ClosedLoop(LOGGED, loop_think(1.0), first=2)
    # Replayed are requests 2, 3 and 4; 3 goes on from 0, which only warmed the caches.
    assert (loop.openers, loop.after) == ([0, 1], [-1, 2, -1])
    simulate(LOGGED, make_scenario(prefill=PerToken(0.02)), loop=loop, warmup_requests=2)
    assert loop.arrived_s == [2.0, 3.0, 7.0]  # 2 to 4, 4 to 6, and 1 s of thinking


def test_without_sessions_the_loop_is_open() -> None:
    trace = make_trace([Ask(0, prompt=100), Ask(0.2, prompt=100)])
    loop = ClosedLoop(trace, np.full(2, UNKNOWN))
    closed = simulate(trace, make_scenario(), loop=loop)
    assert (
        closed.timeline.ttft_s.tolist() == simulate(trace, make_scenario()).timeline.ttft_s.tolist()
    )
    assert loop.arrived_s == [0.0, 0.2]


@pytest.mark.parametrize("idealised", [True, False])
def test_the_same_blocks_are_found_in_either_mode(idealised: bool) -> None:
    trace = sessions([Ask(0, "ab"), Ask(5, "abc"), Ask(6, "abcd")], [0, 0, 0])
    loop = ClosedLoop(trace, np.array([UNKNOWN, 1.0, 1.0]))
    result = simulate(trace, make_scenario(idealised=idealised), loop=loop)
    assert result.timeline.hit_tokens["hbm"].tolist() == [0, 20, 30]
