"""Reuse over time against plain Python on random traces, block by block, ids of any kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Param, Session
from kvtrace.query.catalog import load_catalog
from tests.property.test_reuse_lru import simulate_lru
from tests.queries.reference import (
    BLOCK,
    SECOND,
    arrival,
    leading,
    load,
    prompt_of,
    timed_any,
    timed_trees,
    unlimited,
)
from tests.traces import Traced

CATALOG = load_catalog()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


def alive_run(requests: list[Traced], ttl_ns: int) -> list[int]:
    """Blocks of each request's leading run whose last use is at most this long ago."""
    last_use: dict[int, int] = {}
    hits = []
    for request in requests:
        now = arrival(request)
        hits.append(
            leading([b in last_use and now - last_use[b] <= ttl_ns for b in request.blocks])
        )
        last_use |= dict.fromkeys(request.blocks, now)
    return hits


@given(timed_any())
@settings(max_examples=60, deadline=None)
def test_ttl_curve_equals_the_reference_at_every_time(
    session: Session, requests: list[Traced]
) -> None:
    load(session, requests)
    ttls = [0.0, 0.3, 1 / 3, 1.0, 1.4, 5.0, 6.0, 1000.0]
    rows = CATALOG.run(session, "reuse/ttl_curve", {"ttls_s": ttls}).frame.rows(named=True)
    if not any(one.hit for one in unlimited(requests)):
        assert rows == []
        return
    for ttl, row in zip(ttls, rows, strict=True):
        hits = alive_run(requests, round(ttl * SECOND))
        tokens = [min(hit * BLOCK, prompt_of(one)) for hit, one in zip(hits, requests, strict=True)]
        assert (row["kept_blocks"], row["kept_tokens"]) == (sum(hits), sum(tokens))


@given(timed_any())
@settings(max_examples=40, deadline=None)
def test_default_times_end_with_all_reuse(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    frame = CATALOG.run(session, "reuse/ttl_curve").frame
    kept = frame["kept_blocks"].to_list()
    assert kept == sorted(kept)
    hit = sum(one.hit for one in unlimited(requests))
    assert (kept[-1] if kept else 0) == hit


@given(timed_any())
@settings(max_examples=40, deadline=None)
def test_lifespans_equal_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    uses: dict[int, list[int]] = defaultdict(list)
    for request in requests:
        for block in request.blocks:
            uses[block].append(arrival(request))
    expected: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for times in uses.values():
        seconds = (times[-1] - times[0]) // SECOND
        bucket = 1 << (seconds.bit_length() - 1) if seconds else 0
        for place, value in enumerate((1, len(times) == 1, len(times))):
            expected[bucket][place] += value
    columns = ("lifespan_bucket_s", "distinct_blocks", "used_once_blocks", "block_refs")
    frame = CATALOG.run(session, "reuse/lifespans").frame.select(columns)
    assert frame.rows() == [(bucket, *expected[bucket]) for bucket in sorted(expected)]


@given(timed_any(), st.sampled_from([None, SECOND // 4, SECOND, 7 * SECOND]))
@settings(max_examples=60, deadline=None)
def test_working_set_equals_the_reference(
    session: Session, requests: list[Traced], window: int | None
) -> None:
    load(session, requests)
    params: dict[str, Param] = {"window_ns": window, "block_size_tokens": BLOCK}
    rows = CATALOG.run(session, "reuse/working_set", params).frame.rows(named=True)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for request in requests:
        for block in request.blocks:
            first.setdefault(block, arrival(request))
            last[block] = arrival(request)
    covered = 0
    for row in rows:
        start, end = row["window_start_ns"], row["window_start_ns"] + row["window_ns"]
        inside = [request for request in requests if start <= arrival(request) < end]
        covered += len(inside)
        touched = {block for request in inside for block in request.blocks}
        alive = [block for block in first if first[block] < end and last[block] >= start]
        assert row["touched_blocks"] == len(touched)
        assert row["first_seen_blocks"] == sum(first[block] >= start for block in touched)
        assert row["alive_blocks"] == len(alive)
    assert covered == len(requests)


@given(timed_any())
@settings(max_examples=60, deadline=None)
def test_hot_blocks_equal_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    shares = [0.1, 0.25, 0.5, 1.0]
    rows = CATALOG.run(session, "reuse/hot_blocks", {"top_shares": shares}).frame.rows(named=True)
    reuses: dict[int, int] = {}
    for request, one in zip(requests, unlimited(requests), strict=True):
        for place, block in enumerate(request.blocks):
            reuses[block] = reuses.get(block, 0) + (place < one.hit)
    ranked = sorted(reuses.values(), reverse=True)
    assert len(rows) == (len(shares) if ranked else 0)
    for row in rows:
        assert row["top_blocks"] == max(1, round_half_up(row["top_share"] * len(ranked)))
        top = ranked[: row["top_blocks"]]
        assert (row["top_reusable_blocks"], row["least_reuses"]) == (sum(top), top[-1])
        if not sum(ranked):
            assert row["gini"] is None
            continue
        apart = sum(abs(a - b) for a in ranked for b in ranked)
        assert row["gini"] == pytest.approx(apart / (2 * len(ranked) * sum(ranked)), abs=1e-12)


def round_half_up(value: float) -> int:
    """The nearest whole number, halves up, as SQL rounds."""
    return int(value + 0.5)


@given(timed_any())
@settings(max_examples=60, deadline=None)
def test_cold_and_warm_equal_the_reference(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    rows = CATALOG.run(session, "reuse/cold_and_warm").frame.rows(named=True)
    found = {row["part"]: row for row in rows}
    if not requests:
        assert found == {}
        return
    blocks = [request.blocks for request in requests]
    half = len(requests) // 2
    warm = simulate_lru(blocks, 10**9)
    seen: set[int] = set()
    new = []
    for one in blocks:
        new.append(sum(block not in seen for block in one))
        seen |= set(one)
    for part, place in {"all": slice(None), "first_half": slice(half)}.items():
        if requests[place]:
            assert found[part]["reusable_blocks"] == sum(warm[place])
            assert found[part]["first_seen_blocks"] == sum(new[place])
            assert found[part]["requests"] == len(requests[place])
    assert found["second_half"]["reusable_blocks"] == sum(warm[half:])
    cold = simulate_lru(blocks[half:], 10**9)
    assert found["second_half_cold"]["reusable_blocks"] == sum(cold)
    tokens = [
        min(hit * BLOCK, prompt_of(one)) for hit, one in zip(cold, requests[half:], strict=True)
    ]
    assert found["second_half_cold"]["reusable_tokens"] == sum(tokens)


@given(timed_trees())
@settings(max_examples=60, deadline=None)
def test_trend_follows_from_the_slices_over_time(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    slices = CATALOG.run(session, "reuse/over_time").frame
    known = slices.filter(slices["prompt_tokens"] > 0).select("reusable_tokens", "prompt_tokens")
    row = CATALOG.run(session, "reuse/still_climbing").frame.to_dicts()
    if known.is_empty():
        assert row == []
        return
    size = len(known) // 3
    assert row[0]["slices"] == len(known)
    if size < 2:
        assert row[0]["trend"] is None
        return
    before, last = known.rows()[-2 * size : -size], known.rows()[-size:]
    change = ratio(last) - ratio(before)
    student_t = {2: 4.303, 3: 2.776, 4: 2.447, 5: 2.306}[size]
    half = student_t * sqrt(variance(before) + variance(last))
    assert row[0]["change_ratio"] == pytest.approx(change, abs=1e-12)
    assert row[0]["change_low_ratio"] == pytest.approx(change - half, abs=1e-12)
    assert row[0]["change_high_ratio"] == pytest.approx(change + half, abs=1e-12)


def ratio(rows: list[tuple[int, int]]) -> float:
    """Ratio of sums of (part, whole)."""
    return sum(part for part, _ in rows) / sum(whole for _, whole in rows)


def variance(rows: list[tuple[int, int]]) -> float:
    """Variance of the ratio of sums over independent rows."""
    off = sum((part - ratio(rows) * whole) ** 2 for part, whole in rows)
    return len(rows) / (len(rows) - 1) * off / sum(whole for _, whole in rows) ** 2
