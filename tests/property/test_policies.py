"""The policies against slow caches, their bounds against every possible cache, and their order."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.reuse.policies.blocks import Admission, BlockTrace, Weight
from kvtrace.reuse.policies.bounds import find_intervals, find_optimum, unlimited
from kvtrace.reuse.policies.lru import lru_facts, lru_served
from kvtrace.reuse.policies.run import POLICIES, serve
from tests.unit.policies.small import (
    BLOCK,
    best_possible,
    named,
    slow_lru,
    slow_ranked,
    traced,
)

admissions = st.sampled_from(["all", "second_use"])
weighings = st.sampled_from(["blocks", "tokens"])


@st.composite
def trees(draw: st.DrawFn, requests: int = 10, width: int = 4) -> BlockTrace:
    """Requests that go on from a prefix of an earlier one; a partial last block has its own id."""
    made: list[list[int]] = []
    tails: list[int] = []
    fresh = 0
    for _ in range(draw(st.integers(1, requests))):
        blocks: list[int] = []
        tail = 0
        if made:
            parent = draw(st.integers(0, len(made) - 1))
            whole = len(made[parent]) - (tails[parent] > 0)
            if draw(st.booleans()):
                blocks, tail = list(made[parent]), tails[parent]  # the same prompt again
            else:
                blocks = made[parent][: draw(st.integers(0, whole))]
        if not tail:
            new = draw(st.integers(0, width))
            blocks = blocks + list(range(fresh, fresh + new))
            fresh += new
            tail = draw(st.sampled_from([0, 1, 3])) if new else 0
        made.append(blocks)
        tails.append(tail)
    return traced(made, tails=tails, arrived=draw_times(draw, len(made)))


@st.composite
def tangles(draw: st.DrawFn, requests: int = 10, names: int = 6) -> BlockTrace:
    """Any ids in any order, repeats inside a request included."""
    made = draw(
        st.lists(st.lists(st.integers(0, names - 1), max_size=5), min_size=1, max_size=requests)
    )
    tails = [draw(st.sampled_from([0, 0, 2])) for _ in made]
    return traced(made, tails=tails, arrived=draw_times(draw, len(made)))


def draw_times(draw: st.DrawFn, count: int) -> list[int]:
    steps = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return [sum(steps[: i + 1]) for i in range(count)]


def weights_of(trace: BlockTrace, weight: Weight) -> list[int]:
    found: list[int] = trace.weights(weight).tolist()
    return found


def token_worth(trace: BlockTrace) -> list[list[int]]:
    """Tokens that each block of each request counts."""
    return [
        [min(BLOCK, max(0, counted - BLOCK * place)) for place in range(len(request))]
        for counted, request in zip(trace.counted_tokens.tolist(), named(trace), strict=True)
    ]


@given(st.one_of(trees(), tangles()), weighings, admissions, st.integers(1, 12), st.integers(0, 5))
def test_lru_and_ttl_are_what_a_slow_cache_does(
    trace: BlockTrace, weight: Weight, admission: Admission, capacity: int, ttl: int
) -> None:
    facts = lru_facts(trace, weight=weight, admission=admission)
    weights, room = weights_of(trace, weight), trace.room(capacity, weight)
    for lives in (None, ttl):
        slow = slow_lru(trace, weights, room, is_second=admission == "second_use", ttl=lives)
        assert lru_served(facts, room, ttl_ns=lives).hit_blocks.tolist() == slow


@pytest.mark.parametrize("policy", ["fifo", "lfu", "length_aware"])
@given(
    trace=st.one_of(trees(), tangles()),
    weight=weighings,
    admission=admissions,
    capacity=st.integers(1, 10),
)
def test_ranked_policies_are_what_a_slow_search_for_the_worst_leaf_does(
    policy: str, trace: BlockTrace, weight: Weight, admission: Admission, capacity: int
) -> None:
    (fast,) = serve(trace, policy, [capacity], weight=weight, admission=admission, mode="python")  # type: ignore[arg-type]
    hits, stored = slow_ranked(
        trace,
        weights_of(trace, weight),
        trace.room(capacity, weight),
        policy,
        is_second=admission == "second_use",
    )
    assert fast.hit_blocks.tolist() == hits
    assert fast.stored_blocks.tolist() == stored


@settings(max_examples=60)
@given(trees(requests=6, width=2), weighings, st.integers(1, 4))
def test_on_a_tree_the_strict_optimum_is_the_relaxed_one_and_the_bounds_hold_it(
    trace: BlockTrace, weight: Weight, capacity: int
) -> None:
    if trace.distinct_blocks > 8:
        return
    strict, relaxed = check_bracket(trace, weight, capacity)
    if weight == "blocks":
        found = find_intervals(trace)
        optimum = find_optimum(found, capacity, weight, mode="python")
        assert found.is_tree
        assert strict == relaxed == optimum.high.blocks == int(optimum.low.sum())


@settings(max_examples=60)
@given(tangles(requests=6, names=5), weighings, st.integers(1, 4))
def test_on_any_ids_the_bounds_hold_the_optimum(
    trace: BlockTrace, weight: Weight, capacity: int
) -> None:
    check_bracket(trace, weight, capacity)


def check_bracket(trace: BlockTrace, weight: Weight, capacity: int) -> tuple[int, int]:
    """low <= strict <= relaxed <= high <= unlimited, in blocks and in tokens; the blocks."""
    found = find_intervals(trace)
    optimum = find_optimum(found, capacity, weight, mode="python")
    weights, room = weights_of(trace, weight), trace.room(capacity, weight)
    ones = [[1] * len(request) for request in named(trace)]
    everything = unlimited(found)
    strict, relaxed = best_possible(trace, weights, room, ones)
    assert int(optimum.low.sum()) <= strict <= relaxed <= optimum.high.blocks <= everything.blocks
    by_tokens = best_possible(trace, weights, room, token_worth(trace))
    low = int(trace.tokens_of(optimum.low).sum())
    assert low <= by_tokens[0] <= by_tokens[1] <= optimum.high.tokens <= everything.tokens
    return strict, relaxed


@given(st.one_of(trees(), tangles()), weighings, admissions, st.integers(1, 10))
def test_no_policy_passes_the_bounds(
    trace: BlockTrace, weight: Weight, admission: Admission, capacity: int
) -> None:
    high = find_optimum(find_intervals(trace), capacity, weight, mode="python").high
    sizes = trace.offset[1:] - trace.offset[:-1]
    for policy in POLICIES:
        (served,) = serve(
            trace, policy, [capacity], weight=weight, admission=admission, ttl_ns=2, mode="python"
        )
        assert int(served.hit_blocks.sum()) <= high.blocks
        assert int(trace.tokens_of(served.hit_blocks).sum()) <= high.tokens
        assert (served.hit_blocks <= served.stored_blocks).all()
        assert (served.stored_blocks <= sizes).all()


@given(st.one_of(trees(), tangles()), weighings, admissions)
def test_a_larger_lru_cache_never_serves_less_and_the_largest_serves_all(
    trace: BlockTrace, weight: Weight, admission: Admission
) -> None:
    facts = lru_facts(trace, weight=weight, admission=admission)
    rooms = [trace.room(one, weight) for one in range(trace.distinct_blocks + 1)]
    hits = [lru_served(facts, room).hit_blocks for room in rooms]
    assert all((less <= more).all() for less, more in pairwise(hits))
    if admission == "all":
        assert int(hits[-1].sum()) == unlimited(find_intervals(trace)).blocks


@given(trees(), weighings, st.integers(1, 10))
def test_every_policy_with_room_for_all_serves_all(
    trace: BlockTrace, weight: Weight, more: int
) -> None:
    everything = unlimited(find_intervals(trace))
    for policy in POLICIES:
        (served,) = serve(
            trace,
            policy,
            [trace.distinct_blocks + more],
            weight=weight,
            ttl_ns=10**9,
            mode="python",
        )
        assert int(served.hit_blocks.sum()) == everything.blocks
        assert int((served.stored_blocks - served.hit_blocks).sum()) == trace.distinct_blocks


@given(trees(), st.integers(1, 10))
def test_second_use_never_writes_a_block_that_is_asked_for_once(
    trace: BlockTrace, capacity: int
) -> None:
    seconds = int(trace.is_second.sum())
    for policy in POLICIES:
        (served,) = serve(
            trace, policy, [capacity], admission="second_use", ttl_ns=10**9, mode="python"
        )
        hits = int(served.hit_blocks.sum())
        assert hits + int((served.stored_blocks - served.hit_blocks).sum()) <= seconds


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
@settings(max_examples=25)
@given(st.one_of(trees(), tangles()), weighings, admissions, st.integers(1, 10))
def test_compiled_kernels_give_the_same_integers(
    trace: BlockTrace, weight: Weight, admission: Admission, capacity: int
) -> None:
    for policy in POLICIES:
        results = [
            serve(
                trace, policy, [capacity], weight=weight, admission=admission, ttl_ns=2, mode=mode
            )[0]
            for mode in ("python", "numba")
        ]
        assert results[0].hit_blocks.tolist() == results[1].hit_blocks.tolist()
        assert results[0].stored_blocks.tolist() == results[1].stored_blocks.tolist()
    found = find_intervals(trace)
    slow, fast = (find_optimum(found, capacity, weight, mode=mode) for mode in ("python", "numba"))
    assert slow.high == fast.high
    assert slow.low.tolist() == fast.low.tolist()
