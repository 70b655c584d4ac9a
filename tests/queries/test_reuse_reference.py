"""The reuse queries against plain Python on random traces, block by block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Param, Session
from kvtrace.query.catalog import load_catalog
from kvtrace.schema.tables import TABLES
from tests.property.test_reuse_lru import simulate_lru, trees
from tests.traces import Traced, tables

BLOCK = 4
SECOND = 1_000_000_000
CATALOG = load_catalog()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


@dataclass
class Looked:
    """One request as the reference sees it."""

    prompt: int
    blocks: int
    partial: bool
    hit: int
    arrived: int
    gaps: list[int]
    """Nanoseconds since the last use of each reusable block."""

    def tokens(self, blocks: int) -> int:
        """Prompt tokens in the first blocks."""
        return min(blocks * BLOCK, self.prompt)


def look_up(requests: list[Traced], hits: list[int]) -> list[Looked]:
    """Each request with its hit blocks, in arrival order."""
    last_use: dict[int, int] = {}
    found = []
    for request, hit in zip(requests, hits, strict=True):
        arrived = int(str(request.columns["arrived_at_ns"]))
        prompt = len(request.blocks) * BLOCK
        prompt -= (BLOCK - request.tail_tokens) if request.tail_tokens else 0
        gaps = [arrived - last_use[block] for block in request.blocks[:hit]]
        last_use |= dict.fromkeys(request.blocks, arrived)
        blocks = len(request.blocks)
        found.append(Looked(prompt, blocks, request.tail_tokens > 0, hit, arrived, gaps))
    return found


@st.composite
def timed_trees(draw: st.DrawFn) -> list[Traced]:
    """Trees of requests with non-decreasing arrivals, none without blocks."""
    requests = [request for request in draw(trees()) if request.blocks]
    clock = 0
    for request in requests:
        clock += draw(st.sampled_from([0, SECOND // 3, SECOND, 5 * SECOND]))
        request.columns["arrived_at_ns"] = clock
    return requests


def load(session: Session, requests: list[Traced]) -> None:
    """Fill the session with this trace."""
    frames = {name: table.empty() for name, table in TABLES.items()}
    for name, frame in (frames | tables(requests, block_size_tokens=BLOCK)).items():
        session.create_table(name, frame)


def unlimited(requests: list[Traced]) -> list[Looked]:
    """The trace in a cache without end."""
    return look_up(requests, simulate_lru([request.blocks for request in requests], 10**9))


@given(timed_trees())
@settings(max_examples=60, deadline=None)
def test_summary_equals_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    row = CATALOG.run(session, "reuse/summary").frame.row(0, named=True)
    found = unlimited(requests)
    assert row["requests"] == len(found)
    if not found:
        return
    refs = sum(one.blocks for one in found)
    reusable = sum(one.hit for one in found)
    tokens = sum(one.tokens(one.hit) for one in found)
    prompt = sum(one.prompt for one in found)
    full = sum(one.blocks - one.partial for one in found)
    full_hit = sum(one.hit - (one.partial and one.hit == one.blocks) for one in found)
    assert (row["block_refs"], row["reusable_blocks"]) == (refs, reusable)
    assert (row["prompt_tokens"], row["reusable_tokens"]) == (prompt, tokens)
    assert (row["full_block_refs"], row["reusable_full_blocks"]) == (full, full_hit)
    assert row["reusable_ratio_blocks"] == reusable / refs
    assert row["reusable_ratio_tokens"] == tokens / prompt
    assert row["reusable_ratio_full_blocks"] == (full_hit / full if full else None)
    assert row["reusable_ratio_requests_mean"] == pytest.approx(
        sum(one.tokens(one.hit) / one.prompt for one in found) / len(found)
    )
    assert row["reusable_ratio_requests_mean_blocks"] == pytest.approx(
        sum(one.hit / one.blocks for one in found) / len(found)
    )
    assert row["requests_with_reuse"] == sum(one.hit > 0 for one in found)


@given(timed_trees())
@settings(max_examples=60, deadline=None)
def test_capacity_curve_equals_the_reference_at_every_capacity(
    session: Session, requests: list[Traced]
) -> None:
    load(session, requests)
    blocks = [request.blocks for request in requests]
    capacities = list(range(1, len({b for one in blocks for b in one}) + 2))
    params: dict[str, Param] = {"capacities": capacities, "block_size_tokens": BLOCK}
    rows = CATALOG.run(session, "reuse/capacity_curve", params).frame.rows(named=True)
    expected = []
    for capacity in capacities if requests else []:
        found = look_up(requests, simulate_lru(blocks, capacity))
        tokens = sum(one.tokens(one.hit) for one in found)
        expected.append((capacity, sum(one.hit for one in found), tokens))
    assert [(r["capacity_blocks"], r["hit_blocks"], r["hit_tokens"]) for r in rows] == expected


@given(timed_trees())
@settings(max_examples=40, deadline=None)
def test_buckets_equal_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    expected: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for one in unlimited(requests):
        bucket = 1
        while 2 * bucket <= one.prompt:
            bucket *= 2
        for place, value in enumerate((1, one.prompt, one.tokens(one.hit))):
            expected[bucket][place] += value
    frame = CATALOG.run(session, "reuse/by_prompt_bucket").frame
    columns = ("prompt_bucket", "requests", "prompt_tokens", "reusable_tokens")
    assert frame.select(columns).rows() == [(b, *expected[b]) for b in sorted(expected)]


@given(timed_trees())
@settings(max_examples=40, deadline=None)
def test_gaps_equal_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    expected: dict[int, int] = defaultdict(int)
    for one in unlimited(requests):
        for gap in one.gaps:
            bucket = 1 if gap >= SECOND else 0
            while bucket and 2 * bucket <= gap // SECOND:
                bucket *= 2
            expected[bucket] += 1
    frame = CATALOG.run(session, "reuse/gaps").frame.select("gap_bucket_s", "reused_blocks")
    assert frame.rows() == sorted(expected.items())


@given(timed_trees())
@settings(max_examples=40, deadline=None)
def test_slices_equal_the_reference_and_lose_no_request(
    session: Session, requests: list[Traced]
) -> None:
    load(session, requests)
    found = unlimited(requests)
    frame = CATALOG.run(session, "reuse/over_time").frame
    assert len(frame) <= 24
    assert frame["requests"].sum() == len(found)
    starts = frame["slice_start_ns"].to_list()
    for start, end, row in zip(starts, [*starts, None][1:], frame.rows(named=True), strict=True):
        inside = [
            one for one in found if start <= one.arrived and (end is None or one.arrived < end)
        ]
        assert row["requests"] == len(inside)
        assert row["prompt_tokens"] == (sum(one.prompt for one in inside) if inside else None)
        assert (row["reusable_tokens"] or 0) == sum(one.tokens(one.hit) for one in inside)


@given(timed_trees())
@settings(max_examples=40, deadline=None)
def test_kv_bytes_equal_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    found = unlimited(requests)
    params: dict[str, Param] = {"kv_bytes_per_token": 3.0, "block_size_tokens": BLOCK}
    row = CATALOG.run(session, "kv/summary", params).frame.row(0, named=True)
    if not found:
        return
    distinct = len({block for request in requests for block in request.blocks})
    assert row["kv_bytes_requested"] == 3 * sum(one.prompt for one in found)
    assert row["kv_bytes_block_rounded"] == 3 * BLOCK * sum(
        ceil(one.prompt / BLOCK) for one in found
    )
    assert row["kv_bytes_distinct"] == 3 * BLOCK * distinct
    assert row["kv_bytes_max"] == 3 * max(one.prompt for one in found)
