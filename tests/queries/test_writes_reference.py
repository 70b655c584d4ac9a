"""What caches write against plain Python on random traces, block by block, ids of any kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Param, Session
from kvtrace.query.catalog import load_catalog
from tests.property.test_reuse_lru import simulate_lru
from tests.queries.reference import BLOCK, leading, load, prompt_of, timed_any, unlimited
from tests.traces import Traced

CATALOG = load_catalog()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


@given(timed_any())
@settings(max_examples=60, deadline=None)
def test_written_and_read_equal_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    row = CATALOG.run(session, "writes/summary").frame.row(0, named=True)
    found = unlimited(requests)
    distinct = {block for request in requests for block in request.blocks}
    read = {
        block
        for request, one in zip(requests, found, strict=True)
        for block in request.blocks[: one.hit]
    }
    assert row["requests"] == len(requests)
    if not requests:
        return
    assert row["written_blocks"] == len(distinct)
    assert row["read_blocks"] == sum(one.hit for one in found)
    assert row["read_tokens"] == sum(one.tokens(one.hit) for one in found)
    assert row["never_read_blocks"] == len(distinct - read)


@given(timed_any())
@settings(max_examples=80, deadline=None)
def test_second_use_equals_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    rows = CATALOG.run(session, "writes/second_use").frame.rows(named=True)
    if not requests:
        assert rows == []
        return
    holders: Counter[int] = Counter()
    hits, tokens = 0, 0
    for request in requests:
        hit = leading([holders[block] >= 2 for block in request.blocks])
        hits += hit
        tokens += min(hit * BLOCK, prompt_of(request))
        holders.update(set(request.blocks))
    stored = sum(count >= 2 for count in holders.values())
    first, second = rows
    assert (second["written_blocks"], second["hit_blocks"]) == (stored, hits)
    assert second["hit_tokens"] == tokens
    assert first["written_blocks"] == len(holders)
    assert first["hit_blocks"] == sum(one.hit for one in unlimited(requests))


@given(timed_any(), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_an_lru_tier_writes_what_it_misses(
    session: Session, requests: list[Traced], capacity: int
) -> None:
    load(session, requests)
    params: dict[str, Param] = {
        "kv_bytes_per_token": 2.0,
        "block_size_tokens": BLOCK,
        "capacity_bytes": 2.0 * BLOCK * capacity,
    }
    rows = CATALOG.run(session, "writes/endurance", params).frame.rows(named=True)
    written = {row["cache"]: row["written_blocks"] for row in rows}
    blocks = [request.blocks for request in requests]
    misses = sum(map(len, blocks)) - sum(simulate_lru(blocks, capacity))
    assert written.get("lru", 0) == misses
    assert written.get("unlimited", 0) == len({block for one in blocks for block in one})
