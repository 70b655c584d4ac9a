"""Who shares, and what generated tokens add, against plain Python on random trees of prompts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from tests.property.test_continuations_reference import BLOCK, full_blocks, talks, tokens
from tests.property.test_reuse_lru import simulate_lru
from tests.traces import Traced, create_tables, tables

CATALOG = load_catalog()
UNLIMITED = 10**9


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


class Turn(NamedTuple):
    """One request as the reference sees it."""

    request: Traced
    hits: int
    conversation: int
    parent: int | None


def load(session: Session, requests: list[Traced]) -> list[Turn]:
    """Fill the session; the conversations are those of the table, the hits a plain simulation's."""
    made = tables(requests, block_size_tokens=BLOCK)
    create_tables(session, made)
    talk = {row["request_key"]: row for row in made["continuations"].iter_rows(named=True)}
    hits = simulate_lru([one.blocks for one in requests], UNLIMITED)
    return [
        Turn(one, hit, talk[key]["conversation"], talk[key]["parent_request_key"])
        for key, (one, hit) in enumerate(zip(requests, hits, strict=True))
        if key in talk
    ]


def block_tokens(request: Traced, place: int) -> int:
    is_partial = request.tail_tokens > 0 and place == len(request.blocks) - 1
    return request.tail_tokens if is_partial else BLOCK


@given(talks())
@settings(max_examples=100, deadline=None)
def test_kinds_of_reuse_equal_a_walk_over_blocks(session: Session, requests: list[Traced]) -> None:
    held: defaultdict[int, set[int]] = defaultdict(set)
    prompts: set[tuple[int, ...]] = set()
    blocks: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    for turn in load(session, requests):
        for place, block in enumerate(turn.request.blocks[: turn.hits]):
            is_own = turn.conversation in held[block]
            has_others = bool(held[block] - {turn.conversation})
            both = "continuation_and_sharing" if has_others else "continuation"
            kind = both if is_own else "sharing"
            if tuple(turn.request.blocks) in prompts:
                kind = "repeated_prompt"
            blocks[kind] += 1
            saved[kind] += block_tokens(turn.request, place)
        prompts.add(tuple(turn.request.blocks))
        for block in turn.request.blocks:
            held[block].add(turn.conversation)
    frame = CATALOG.run(session, "sharing/continuation_and_sharing").frame
    assert frame.is_empty() == (not held)
    for row in frame.iter_rows(named=True):
        assert row["reusable_blocks"] == blocks[row["kind"]]
        assert row["reusable_tokens"] == saved[row["kind"]]


@given(talks(), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_prefixes_make_a_tree_whose_savings_add_up(
    session: Session, requests: list[Traced], min_conversations: int
) -> None:
    turns = load(session, requests)
    everyone: defaultdict[int, set[int]] = defaultdict(set)
    found: Counter[int] = Counter()
    saved: Counter[int] = Counter()
    for turn in turns:
        for place, block in enumerate(turn.request.blocks):
            everyone[block].add(turn.conversation)
            if place < turn.hits:
                found[block] += 1
                saved[block] += block_tokens(turn.request, place)
    shared = {one for one in found if len(everyone[one]) >= min_conversations}
    params = {"min_conversations": min_conversations, "limit_prefixes": 1000}
    frame = CATALOG.run(session, "sharing/top_prefixes", params).frame
    assert frame["segment_blocks"].sum() == len(shared)
    assert frame["saved_tokens"].sum() == sum(saved[one] for one in shared)
    assert frame["saved_tokens"].to_list() == sorted(frame["saved_tokens"], reverse=True)
    depth = dict(frame.select("node", "depth_blocks").iter_rows())
    # All blocks above a shared one are shared too, so each segment starts where its parent ends.
    for row in frame.iter_rows(named=True):
        above = depth.get(row["parent_node"], 0)
        assert row["depth_blocks"] == above + row["segment_blocks"]


@given(talks(), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_each_request_is_in_its_deepest_root(
    session: Session, requests: list[Traced], min_conversations: int
) -> None:
    turns = load(session, requests)
    everyone: defaultdict[int, set[int]] = defaultdict(set)
    for turn in turns:
        for block in turn.request.blocks:
            everyone[block].add(turn.conversation)
    ends: Counter[int] = Counter()
    held: Counter[int] = Counter()
    for turn in turns:
        root = [b for b in turn.request.blocks if len(everyone[b]) >= min_conversations]
        if root:
            ends[root[-1]] += 1
            held[root[-1]] += sum(block_tokens(turn.request, place) for place in range(len(root)))
    params = {"min_conversations": min_conversations, "limit_roots": 1000}
    frame = CATALOG.run(session, "sharing/roots", params).frame
    expected = sorted((ends[end], held[end], len(everyone[end])) for end in ends)
    columns = ("requests", "root_tokens", "conversations")
    assert sorted(frame.select(columns).iter_rows()) == expected


@given(talks(), st.lists(st.sampled_from([None, 0, 1, 5, 9]), min_size=16, max_size=16))
@settings(max_examples=100, deadline=None)
def test_generated_tokens_stay_between_prompts_alone_and_the_own_prompt(
    session: Session, requests: list[Traced], outputs: list[int | None]
) -> None:
    answered = [
        Traced(one.blocks, one.tail_tokens, {"output_tokens": output})
        for one, output in zip(requests, outputs, strict=False)
    ]
    low = fit = high = 0
    for turn in load(session, answered):
        prompt = tokens(turn.request)
        reused = sum(block_tokens(turn.request, place) for place in range(turn.hits))
        most = sure = 0
        if turn.parent is not None:
            parent = answered[turn.parent]
            output = outputs[turn.parent]
            assert full_blocks(turn.request)[: len(full_blocks(parent))] == full_blocks(parent)
            said = prompt if output is None else tokens(parent) + output
            most = min(prompt, said) // BLOCK * BLOCK
            sure = most if output is not None and said <= prompt else 0
        if prompt:
            low += reused
            fit += max(reused, sure)
            high += max(reused, most)
    frame = CATALOG.run(session, "generated/kept_outputs").frame
    found = dict(frame.select("assumption", "reusable_tokens").iter_rows())
    if found:
        assert found == {"outputs_kept": high, "outputs_kept_that_fit": fit, "prompts_alone": low}
        turns = CATALOG.run(session, "generated/by_turn").frame
        assert turns["reusable_tokens_low"].sum() == low
        assert turns["reusable_tokens_high"].sum() == high
    else:
        assert high == 0
