"""Parents by the full-block rule against a plain search, on random trees of prompts."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.reuse.parents import cut_prompts, find_parents
from kvtrace.reuse.trace import order_requests
from tests.traces import Traced, tables

BLOCK = 4


@st.composite
def talks(draw: st.DrawFn) -> list[Traced]:
    """Prompts that go on from, branch off, or repeat earlier ones; partial blocks are new ids."""
    made: list[Traced] = []
    fresh = 0
    for _ in range(draw(st.integers(1, 16))):
        blocks: list[int] = []
        if made:
            other = made[draw(st.integers(0, len(made) - 1))]
            if draw(st.booleans()):
                made.append(other)
                continue
            whole = len(other.blocks) - (other.tail_tokens > 0)
            blocks = list(other.blocks[: whole - draw(st.sampled_from([0, 0, 0, 1, 2]))])
        new = draw(st.integers(0, 2))
        tail = draw(st.integers(0, BLOCK - 1))
        blocks += range(fresh, fresh + new + (tail > 0))
        fresh += new + (tail > 0)
        made.append(Traced(blocks, tail_tokens=tail))
    return made


def full_blocks(request: Traced) -> list[int]:
    return list(request.blocks[: len(request.blocks) - (request.tail_tokens > 0)])


def tokens(request: Traced) -> int:
    return len(full_blocks(request)) * BLOCK + request.tail_tokens


def is_parent_end(requests: list[Traced], end: int, limit: int) -> bool:
    """Whether the block was made as the end of a prompt and at most `limit` blocks follow it."""
    maker = next(one for one in requests if end in one.blocks)
    followers = {
        one.blocks[place + 1]
        for one in requests
        for place in range(len(one.blocks) - 1)
        if one.blocks[place] == end
    }
    return full_blocks(maker)[-1:] == [end] and len(followers) <= limit


def plain_parents(requests: list[Traced], limit: int) -> list[int]:
    parents = []
    for index, request in enumerate(requests):
        mine, best = full_blocks(request), (-1, -1)
        for earlier in range(index):
            theirs = full_blocks(requests[earlier])
            fits = theirs and mine[: len(theirs)] == theirs
            is_longer = tokens(requests[earlier]) < tokens(request)
            if fits and is_longer and is_parent_end(requests, theirs[-1], limit):
                best = max(best, (len(theirs), earlier))
        parents.append(best[1])
    return parents


@given(talks(), st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_parents_equal_a_plain_search(requests: list[Traced], limit: int) -> None:
    made = tables(requests, block_size_tokens=BLOCK)
    ordered = order_requests(made["requests"], made["blocks"])
    full = [len(full_blocks(one)) for one in requests]
    lengths = [tokens(one) for one in requests]
    found = find_parents(
        cut_prompts(ordered.runs, pl.Series(full).to_numpy()),
        pl.Series(lengths).to_numpy(),
        root_branches=limit,
    )
    assert found.tolist() == plain_parents(requests, limit)


@given(talks())
@settings(max_examples=200, deadline=None)
def test_a_turn_shares_the_whole_of_its_parent_and_no_more_than_is_reusable(
    requests: list[Traced],
) -> None:
    made = tables(requests, block_size_tokens=BLOCK)
    reusable = dict(
        made["reuse"]
        .group_by("request_key")
        .agg(pl.col("token_count").filter("is_reusable").sum())
        .iter_rows()
    )
    for row in made["continuations"].iter_rows(named=True):
        if row["parent_request_key"] is None:
            assert row["turn"] == 0
            continue
        mine, theirs = row["request_key"], row["parent_request_key"]
        shared = full_blocks(requests[theirs])
        assert theirs < mine
        assert row["shared_blocks"] == row["parent_full_blocks"] == len(shared)
        assert full_blocks(requests[mine])[: len(shared)] == shared
        assert row["shared_tokens"] <= reusable[mine]


@given(talks())
@settings(max_examples=200, deadline=None)
def test_turns_count_the_steps_to_the_opening(requests: list[Traced]) -> None:
    frame = tables(requests, block_size_tokens=BLOCK)["continuations"]
    if frame.is_empty():
        return
    parent = dict(frame.select("request_key", "parent_request_key").iter_rows())
    opened: dict[int, int] = {}
    for key, number, turn in frame.select("request_key", "conversation", "turn").iter_rows():
        steps = 0
        above = key
        while parent[above] is not None:
            above, steps = parent[above], steps + 1
        assert steps == turn
        assert opened.setdefault(above, number) == number
    assert sorted(opened.values()) == list(range(len(opened)))


@pytest.mark.parametrize("seed", range(3))
def test_repeats_are_equal_prompts(seed: int) -> None:
    draw = random.Random(seed)
    prompts = [[0, 1], [0, 1, 2], [0, 3], [5]]
    requests = [Traced(draw.choice(prompts)) for _ in range(40)]
    frame = tables(requests, block_size_tokens=BLOCK)["continuations"]
    for key, earlier in frame.select("request_key", "repeat_of_request_key").iter_rows():
        equal = [i for i in range(key) if requests[i].blocks == requests[key].blocks]
        assert earlier == (equal[-1] if equal else None)
