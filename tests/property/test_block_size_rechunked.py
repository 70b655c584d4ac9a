"""Reuse at other block sizes against prompts that are really cut into blocks of that size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from tests.traces import Traced, create_tables, tables

CATALOG = load_catalog()
SIZES = [1, 2, 3, 4, 6, 8, 12, 16]


@st.composite
def prompts(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Token sequences; most begin as an earlier one does, up to any token."""
    made: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(1, 8))):
        start: tuple[int, ...] = ()
        if made:
            other = made[draw(st.integers(0, len(made) - 1))]
            start = other[: draw(st.integers(0, len(other)))]
        made.append(start + tuple(draw(st.lists(st.integers(0, 2), max_size=14))))
    return made


def chunk(prompt: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Full blocks, each named by all tokens up to its end."""
    return [tuple(prompt[:end]) for end in range(size, len(prompt) + 1, size)]


def reusable_blocks(requests: Sequence[Sequence[int]], size: int) -> int:
    """Leading full blocks that earlier requests held, over all requests."""
    seen: set[tuple[int, ...]] = set()
    hits = 0
    for prompt in requests:
        blocks = chunk(prompt, size)
        hits += next((i for i, one in enumerate(blocks) if one not in seen), len(blocks))
        seen.update(blocks)
    return hits


def traced(requests: Sequence[Sequence[int]], size: int, *, has_partial: bool) -> list[Traced]:
    """The trace of these prompts; a partial last block has an id of its own, or is left out."""
    numbers: defaultdict[tuple[int, ...], int] = defaultdict(lambda: len(numbers))
    rows = []
    for prompt in requests:
        blocks = [numbers[one] for one in chunk(prompt, size)]
        tail = len(prompt) % size
        if tail and has_partial:
            blocks.append(numbers[tuple(prompt)])
        rows.append(
            Traced(
                blocks,
                tail_tokens=tail if has_partial else 0,
                columns={"prompt_tokens": len(prompt)},
            )
        )
    return rows


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


@given(prompts(), st.integers(2, 5), st.booleans())
@settings(max_examples=150, deadline=None)
def test_exact_sizes_are_exact_and_ranges_hold_the_truth(
    session: Session, requests: list[tuple[int, ...]], size: int, has_partial: bool
) -> None:
    made = tables(traced(requests, size, has_partial=has_partial), block_size_tokens=size)
    create_tables(session, made)
    frame = CATALOG.run(session, "block_size/what_if", {"block_sizes": SIZES}).frame
    assert frame.is_empty() == made["continuations"].is_empty()
    for row in frame.iter_rows(named=True):
        asked = row["block_tokens"]
        truth = reusable_blocks(requests, asked)
        assert row["full_blocks"] == sum(len(prompt) // asked for prompt in requests)
        assert row["certainty"] == ("exact" if asked % size == 0 else "range")
        if asked % size == 0:
            assert row["reusable_blocks_low"] == row["reusable_blocks_high"] == truth
        else:
            assert row["reusable_blocks_low"] <= truth <= row["reusable_blocks_high"]
