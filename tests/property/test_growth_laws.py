"""Laws of growth, thinning and time compression on random small traces."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.errors import ModelError
from kvtrace.replay.growth import compress_time, grow, session_numbers, thin
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S
from tests.unit.replay_cases import Ask, ints, make_trace

LAW = settings(deadline=None, max_examples=40)


@st.composite
def traces(draw: st.DrawFn) -> RequestTrace:
    """Conversations under a few roots: each turn goes on from the one before it."""
    turns = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(-1, 4), st.integers(0, 1), st.integers(0, 3)),
            min_size=1,
            max_size=14,
        )
    )
    at_s = 0.0
    asks: list[Ask] = []
    sessions: list[int] = []
    for index, (gap, session, root, blocks) in enumerate(turns):
        at_s += gap / 10
        who = session if session >= 0 else f"alone {index}"
        own = [(root, who, depth) for depth in range(blocks)]
        asks.append(Ask(at_s, [("root", root), *own]))
        sessions.append(session)
    return replace(make_trace(asks), session=ints(sessions))


def blocks_of(trace: RequestTrace, request: int) -> list[int]:
    """The block ids of a request, head first."""
    lo, hi = trace.run_offset[request], trace.run_offset[request + 1]
    return [
        block
        for run in range(lo, hi)
        for block in range(trace.run_start[run], trace.run_start[run] + trace.run_blocks[run])
    ]


def turns_of(trace: RequestTrace) -> dict[int, list[int]]:
    """The requests of every session, in order."""
    turns: dict[int, list[int]] = {}
    for request, session in enumerate(session_numbers(trace).tolist()):
        turns.setdefault(session, []).append(request)
    return turns


@given(traces(), st.integers(1, 4), st.integers(0, 3))
@LAW
def test_growth_keeps_every_session_whole_and_in_order(
    trace: RequestTrace, copies: int, seed: int
) -> None:
    grown = grow(trace, copies, seed=seed, spread_s=5.0, root_share=0.5).trace

    def stories(of: RequestTrace) -> list[list[tuple[int, int, int]]]:
        """Gaps to the first turn, prompts and outputs of each session."""
        return sorted(
            [
                (int(of.arrived_at_ns[one] - of.arrived_at_ns[turns[0]]), *_sizes(of, one))
                for one in turns
            ]
            for turns in turns_of(of).values()
        )

    assert stories(grown) == sorted(stories(trace) * copies)
    assert (np.diff(grown.arrived_at_ns) >= 0).all()
    assert len(set(grown.request_key.tolist())) == grown.requests


def _sizes(trace: RequestTrace, request: int) -> tuple[int, int]:
    return int(trace.prompt_tokens[request]), len(blocks_of(trace, request))


@given(traces(), st.integers(2, 4), st.integers(0, 3))
@LAW
def test_copies_share_the_roots_and_nothing_else(
    trace: RequestTrace, copies: int, seed: int
) -> None:
    sessions = len(turns_of(trace))
    share = 0.4
    holders: dict[int, set[int]] = {}
    for session, turns in turns_of(trace).items():
        for request in turns:
            for block in blocks_of(trace, request):
                holders.setdefault(block, set()).add(session)
    roots = {block for block, who in holders.items() if len(who) >= max(2, share * sessions)}
    grown = grow(trace, copies, seed=seed, spread_s=5.0, root_share=share)
    assert grown.root_blocks == len(roots)
    private = trace.distinct_blocks - len(roots)
    assert grown.trace.distinct_blocks == len(roots) + private * copies


@given(traces(), st.integers(2, 3))
@LAW
def test_copies_reuse_no_more_than_the_roots_that_are_there_already(
    trace: RequestTrace, copies: int
) -> None:
    # Unlimited cache. Without roots every copy reuses what the logged sessions reuse; each root is
    # new once instead of once a copy, so it adds at most one hit of its tokens for a further copy.
    alone = grow(trace, copies, seed=1, spread_s=0.0, root_share=2.0)
    logged = int(reusable_tokens(trace).sum())
    assert alone.root_blocks == 0
    assert int(reusable_tokens(alone.trace).sum()) == copies * logged
    shared = grow(trace, copies, seed=1, spread_s=0.0, root_share=0.0)
    extra = shared.root_blocks * trace.block_size_tokens * (copies - 1)
    assert int(reusable_tokens(shared.trace).sum()) <= copies * logged + extra


@given(traces(), st.floats(0.1, 0.9), st.integers(0, 5))
@LAW
def test_thinning_keeps_sessions_whole_and_is_nested(
    trace: RequestTrace, share: float, seed: int
) -> None:
    kept = set(thin(trace, share, seed=seed).request_key.tolist())
    for turns in turns_of(trace).values():
        keys = set(trace.request_key[turns].tolist())
        assert keys <= kept or not keys & kept
    assert kept <= set(thin(trace, min(1.0, share + 0.1), seed=seed).request_key.tolist())


def test_thinning_is_unbiased() -> None:
    # 40 sessions of 1 to 4 turns, 100 requests; 200 seeds: the mean has a standard deviation of
    # sqrt(0.3 · 0.7 · Σ turns² / 200) = sqrt(0.21 · 300 / 200) = 0.56 requests around 30.
    sessions = [number for number in range(40) for _ in range(1 + number % 4)]
    trace = make_trace([Ask(float(at), [at]) for at in range(len(sessions))])
    trace = replace(trace, session=ints(sessions))
    assert trace.requests == 100
    mean = sum(thin(trace, 0.3, seed=seed).requests for seed in range(200)) / 200
    assert abs(mean - 30) < 3 * 0.56


@given(traces(), st.sampled_from([0.5, 2.0, 3.0]))
@LAW
def test_compression_keeps_the_requests_and_divides_the_gaps(
    trace: RequestTrace, factor: float
) -> None:
    packed = compress_time(trace, factor)
    for (a, b), (c, d) in zip(
        pairwise(trace.arrived_at_ns.tolist()), pairwise(packed.arrived_at_ns.tolist()), strict=True
    ):
        assert abs((d - c) - (b - a) / factor) <= 1  # whole nanoseconds
    assert packed.run_start is trace.run_start


def test_a_copy_is_moved_as_a_whole_and_roots_are_found_by_sessions() -> None:
    # two sessions under one root r; session 0 asks twice
    trace = make_trace([Ask(0, "ra"), Ask(2, "rab"), Ask(4, "rc")])
    trace = replace(trace, session=ints([0, 0, 1]))
    grown = grow(trace, 2, seed=7, spread_s=1.0, root_share=1.0).trace
    # logged: r a | r a b | r c are 4 distinct blocks; r is shared, so the copy adds a, b and c
    assert (grown.requests, grown.distinct_blocks) == (6, 7)
    copies = [
        int(at) for at, key in zip(grown.arrived_at_ns, grown.request_key, strict=True) if key < 0
    ]
    assert copies[1] - copies[0] == 2 * NS_PER_S
    assert all(0 <= at <= 5 * NS_PER_S for at in copies)
    assert sorted(set(grown.session.tolist())) == [0, 1, 2, 3]


def test_growth_of_one_is_the_trace_and_what_is_no_growth_is_refused() -> None:
    trace = make_trace([Ask(0, "a"), Ask(1, "a")])
    assert grow(trace, 1, seed=0, spread_s=1.0, root_share=0.5).trace is trace
    assert thin(trace, 1.0, seed=0) is trace
    with pytest.raises(ModelError, match="growth of 0"):
        grow(trace, 0, seed=0, spread_s=1.0, root_share=0.5)
    with pytest.raises(ModelError, match="no clock"):
        grow(replace(trace, has_clock=False), 2, seed=0, spread_s=1.0, root_share=0.5)
    with pytest.raises(ModelError, match="not in"):
        thin(trace, 0.0, seed=0)
    with pytest.raises(ModelError, match="compressed by 0"):
        compress_time(trace, 0.0)
