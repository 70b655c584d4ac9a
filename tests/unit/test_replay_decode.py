"""Decode as processor sharing, by hand."""

from __future__ import annotations

from math import inf

import pytest

from kvtrace.replay.decode import DecodeBatch
from tests.unit.replay_cases import FlatStep


def test_a_lone_request_takes_its_steps() -> None:
    batch = DecodeBatch(FlatStep(0.5))
    batch.join(7, 4, 100.0)
    assert batch.next_end(None) == 2.0
    batch.serve(2.0)
    assert batch.pop_first() == [7]
    assert (batch.size, batch.next_end(None)) == (0, inf)


def test_a_larger_batch_slows_all_of_it() -> None:
    # step 0.1 s alone, 0.2 s for two. b joins after 5 of a's 10 steps (0.5 s): 5 · 0.2 s more.
    batch = DecodeBatch(FlatStep(0.0, 0.1))
    batch.join(0, 10, 0.0)
    assert batch.next_end(None) == pytest.approx(1.0)
    batch.serve(0.5)
    batch.join(1, 10, 0.0)
    assert batch.next_end(None) == pytest.approx(1.5)
    batch.serve(1.5)
    assert batch.pop_first() == [0]
    assert batch.next_end(None) == pytest.approx(2.0)  # b: 5 more steps of 0.1 s


def test_a_step_reads_the_context_of_those_that_are_there() -> None:
    # 1 ms per token of context: 100 + 300 tokens, then 300
    batch = DecodeBatch(FlatStep(0.0, 0.0, 0.001))
    batch.join(0, 1, 100.0)
    batch.join(1, 2, 300.0)
    assert batch.step_s() == pytest.approx(0.4)
    batch.serve(batch.next_end(None))
    assert batch.pop_first() == [0]
    assert batch.step_s() == pytest.approx(0.3)


def test_requests_that_end_together_leave_together() -> None:
    batch = DecodeBatch(FlatStep(1.0))
    batch.join(0, 3, 0.0)
    batch.join(1, 3, 0.0)
    batch.serve(batch.next_end(None))
    assert batch.pop_first() == [0, 1]


def test_a_prefill_sets_the_pace() -> None:
    batch = DecodeBatch(FlatStep(1.0))
    batch.join(0, 3, 0.0)
    assert batch.next_end(0.5) == 6.0
    assert batch.next_end(0.0) == inf


def test_a_late_end_is_now() -> None:
    batch = DecodeBatch(FlatStep(1.0))
    batch.join(0, 3, 0.0)
    batch.next_end(None)
    batch.serve(3.5)
    assert batch.next_end(None) == 3.5


def test_each_change_voids_older_ends() -> None:
    batch = DecodeBatch(FlatStep(1.0))
    before = batch.version
    batch.next_end(None)
    assert batch.version == before + 1


def test_a_step_of_no_time_still_ends() -> None:
    batch = DecodeBatch(FlatStep(0.0))
    assert batch.step_s() == 0.0
    batch.join(0, 3, 0.0)
    assert batch.next_end(None) == pytest.approx(0.0, abs=1e-9)
