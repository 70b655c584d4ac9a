"""HBM that is taken as it is needed, by hand: decode steps of 1 s, prefills of 0.01 s a token."""

from __future__ import annotations

import numpy as np
import pytest

from kvtrace.replay.decode import DecodeBatch
from kvtrace.replay.engine import simulate
from kvtrace.replay.occupancy import occupancy
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from tests.unit.replay_cases import KV_BYTES, Ask, FlatStep, PerToken, make_scenario, make_trace


def room(tokens: int, **changes: object) -> Scenario:
    """One instance whose HBM holds so many tokens, with decode steps of 1 s."""
    fields: dict[str, object] = {
        "kv_admission": "as_needed",
        "hbm_capacity_bytes": tokens * KV_BYTES,
        "decode": FlatStep(1.0),
        "prefill": PerToken(0.01),
        "reuse": False,
        **changes,
    }
    return make_scenario(**fields)


def ends(result: ReplayResult) -> list[float]:
    return [round(seconds, 6) for seconds in result.timeline.e2e_s.tolist()]


def test_a_request_enters_with_its_prompt_alone() -> None:
    # prompts of 10 and 20 tokens fit 49, with their output (10 each) they would not
    trace = make_trace([Ask(0, prompt=10, output=10), Ask(1, prompt=20, output=10)])
    whole = simulate(trace, room(49, kv_admission="whole"))
    needed = simulate(trace, room(49))
    assert whole.timeline.queue_s.tolist() == pytest.approx([0.0, 8.1])  # a ends at 0.1 + 9 s
    assert needed.timeline.queue_s.tolist() == [0.0, 0.0]
    assert needed.preempted == ()


def test_the_request_that_entered_last_gives_way_and_computes_again_what_it_has_lost() -> None:
    # a prefills until 0.1 s; b's step takes 0.1 s and a decode step of a, until 1.2 s. Then each
    # makes a token a second: prompts of 20 in 29, and one of a, leave 8 tokens, which last until
    # 5.2 s. b gives up 10 + 4 tokens. a, alone, makes the last four of its 9 steps by 9.2 s; b then
    # computes its prompt and 5 tokens again (0.15 s), which makes its 6th, and ends 4 steps later.
    trace = make_trace([Ask(0, prompt=10, output=10), Ask(0, prompt=10, output=10)])
    result = simulate(trace, room(29))
    assert ends(result) == [9.2, 13.35]
    assert [round(x, 6) for x in result.timeline.ttft_s.tolist()] == [0.1, 1.2]
    assert [(r, round(a, 6), round(b, 6)) for r, a, b in result.preempted] == [(1, 5.2, 9.2)]
    assert result.timeline.computed_tokens.tolist() == [10, 10]


def test_a_preempted_request_waits_and_does_not_run() -> None:
    # the same: b runs from 0.1 s (its step begins when a's ends) to 5.2 s, and again from 9.2 s
    trace = make_trace([Ask(0, prompt=10, output=10), Ask(0, prompt=10, output=10)])
    at = np.array([0.05, 1.0, 6.0, 10.0, 14.0])
    found = occupancy(simulate(trace, room(29)), np.zeros(2), at)
    assert found.running.tolist() == [1, 2, 1, 1, 0]
    assert found.waiting.tolist() == [1, 0, 1, 0, 0]


def test_a_preempted_request_finds_what_is_left_of_its_blocks() -> None:
    # As above with a prefix cache: b's 14 tokens lie free, a takes its last 4 from b's tail, so
    # that b finds 10 and computes 5: 0.05 s.
    trace = make_trace([Ask(0, prompt=10, output=10), Ask(0, prompt=10, output=10)])
    result = simulate(trace, room(29, reuse=True))
    assert ends(result) == [9.2, 13.25]


def test_a_prompt_takes_whole_blocks() -> None:
    # blocks of 8: prompts of 9 take 16, so that 30 tokens hold one request at a time
    trace = make_trace([Ask(0, prompt=9, output=2), Ask(0, prompt=9, output=2)])
    result = simulate(trace, room(30, kv_block_tokens=8))
    assert result.timeline.queue_s[1] > 1.0
    tokens = simulate(trace, room(30, kv_block_tokens=0))  # no blocks: 9 tokens take 9
    assert tokens.timeline.queue_s[1] == pytest.approx(0.09)


def test_a_lone_request_that_outgrows_hbm_is_let_run() -> None:
    result = simulate(make_trace([Ask(0, prompt=10, output=20)]), room(15))
    assert ends(result) == [19.1]
    assert result.preempted == ()


def test_no_more_requests_run_than_the_engine_allows() -> None:
    # the second waits for the first one's end: 0.1 s of prefill and 4 steps
    trace = make_trace([Ask(0, prompt=10, output=5), Ask(0, prompt=10, output=5)])
    result = simulate(trace, room(1_000, running_requests=1))
    assert result.timeline.queue_s.tolist() == pytest.approx([0.0, 4.1])


def test_decoding_requests_take_their_tokens_from_the_chunk() -> None:
    # chunks of 4. b comes while a decodes: 3 of its 6 tokens a step instead of 4 and 2; each step
    # also makes a token of a (1 s): 0.03 + 1 and 0.03 + 1 s, against 0.04 + 1 and 0.02 + 1
    trace = make_trace([Ask(0, prompt=4, output=30), Ask(0.04, prompt=7, output=1)])
    fields = {"prefill_chunk_tokens": 4, "kv_admission": "whole"}
    alone = simulate(trace, room(1_000, **fields))
    shared = simulate(trace, room(1_000, decode_in_chunk=True, **fields))
    # 7 tokens: 4 + 3 in two steps of 1 s; 3 + 3 + 1 in three
    assert alone.timeline.ttft_s[1] == pytest.approx(2.07)
    assert shared.timeline.ttft_s[1] == pytest.approx(3.07)


def test_the_context_of_a_batch_grows_token_by_token() -> None:
    # 10 ms a token of context: from 100 to 110 tokens in 10 steps, 105 on average
    batch = DecodeBatch(FlatStep(0.0, 0.0, 0.01), grows=True)
    batch.join(0, 10, 100.0)
    assert batch.next_end(None) == pytest.approx(10 * 1.05)
    batch.serve(1.05 * 4)
    assert batch.grown_tokens == pytest.approx(4.0)
    assert batch.step_s() == pytest.approx(1.04)


def test_a_dropped_request_says_what_it_has_made() -> None:
    batch = DecodeBatch(FlatStep(1.0))
    batch.join(0, 10, 0.0)
    batch.join(1, 4, 0.0)
    batch.next_end(None)
    batch.serve(2.5)
    assert batch.drop(0) == (2, 8)
    assert (batch.size, batch.members()) == (1, [1])
    assert batch.next_end(None) == pytest.approx(4.0)


def test_room_lasts_as_long_as_the_pace_says() -> None:
    batch = DecodeBatch(FlatStep(0.5))
    batch.join(0, 100, 0.0)
    batch.join(1, 100, 0.0)
    batch.next_end(None)
    assert batch.time_of(8.0) == pytest.approx(2.0)  # two tokens every half second
    assert batch.time_of(-1.0) == 0.0


def test_growth_of_the_batch_may_take_a_part_of_what_the_next_request_finds() -> None:
    # HBM holds 110 tokens. When the last request is let in, its first block lies there, until what
    # the batch has generated takes its room.
    asks = [
        Ask(0.0, [], 0, 9),
        Ask(0.0, [(0,), (0, 0), (0, 0, 0)], 30, 7),
        Ask(0.0, [(1,), (1, 0), (1, 0, 0), (1, 0, 0, 0)], 40, 0),
        Ask(0.0, [(0,), *[(0, *[1] * depth) for depth in range(1, 7)]], 70, 0),
        Ask(0.0, [(1,), (1, 0), (1, 0, 2)], 30, 2),
    ]
    scenario = make_scenario(
        hbm_capacity_bytes=220.0,
        prefill=PerToken(0.01, 0.0001),
        decode=FlatStep(0.05, 0.01),
        prefill_chunk_tokens=16,
        kv_admission="as_needed",
    )
    timeline = simulate(make_trace(asks), scenario).timeline
    assert timeline.hit_tokens["hbm"].tolist() == [0, 0, 0, 10, 0]
    assert timeline.computed_tokens.tolist() == [0, 30, 40, 60, 30]
