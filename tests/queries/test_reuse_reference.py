"""The reuse queries against plain Python on random traces, block by block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Param, Session
from kvtrace.query.catalog import load_catalog
from tests.property.test_reuse_lru import simulate_lru
from tests.queries.reference import (
    BLOCK,
    SECOND,
    load,
    look_up,
    prompt_of,
    timed_any,
    timed_trees,
    unlimited,
)
from tests.traces import Traced, Value

CATALOG = load_catalog()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


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


@given(timed_any())
@settings(max_examples=40, deadline=None)
def test_marks_equal_the_curve_at_their_blocks(session: Session, requests: list[Traced]) -> None:
    load(session, requests)
    sizes: dict[str, Param] = {"hbm_bytes": 25.0, "dram_bytes": 61.0, "pool_bytes": 400.0}
    params: dict[str, Param] = {"kv_bytes_per_token": 3.0, "block_size_tokens": BLOCK}
    marks = CATALOG.run(session, "reuse/capacity_marks", params | sizes).frame
    # A block is 12 bytes: 2, 5 and 33 blocks.
    asked: dict[str, Param] = params | {"capacities": [2, 5, 33]}
    curve = CATALOG.run(session, "reuse/capacity_curve", asked).frame
    shared = ["capacity_blocks", "hit_blocks", "hit_tokens", "hit_ratio_blocks", "hit_ratio_tokens"]
    assert marks.select(shared).equals(curve.select(shared))


def engine_hits(requests: list[Traced]) -> list[int]:
    """Tokens that an engine without limits serves: whole blocks, never with the last token."""
    return [
        min(one.hit - (one.partial and one.hit == one.blocks), (one.prompt - 1) // BLOCK) * BLOCK
        for one in unlimited(requests)
    ]


@given(timed_trees(), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_definitions_equal_the_reference(
    session: Session, requests: list[Traced], window: int
) -> None:
    load(session, requests)
    params: dict[str, Param] = {"window_requests": window, "block_size_tokens": BLOCK}
    rows = CATALOG.run(session, "reuse/definitions", params).frame.rows(named=True)
    ratios = {row["definition"]: (row["numerator"], row["denominator"]) for row in rows}
    if not requests:
        assert ratios["engine_tokens"] == (None, None)
        return
    found, engine = unlimited(requests), engine_hits(requests)
    warm, prompt = found[len(found) // 2 :], [one.prompt for one in found]
    assert ratios["engine_tokens"] == (sum(engine), sum(prompt))
    assert ratios["engine_tokens_window"] == (sum(engine[-window:]), sum(prompt[-window:]))
    assert ratios["reusable_tokens_warm"] == (
        sum(one.tokens(one.hit) for one in warm),
        sum(one.prompt for one in warm),
    )


@given(timed_trees())
@settings(max_examples=40, deadline=None)
def test_explained_ratios_are_those_of_the_definitions(
    session: Session, requests: list[Traced]
) -> None:
    for place, request in enumerate(requests):
        request.columns["cached_tokens"] = prompt_of(request) // 3 if place % 3 else None
    load(session, requests)
    params: dict[str, Param] = {"window_requests": 3, "block_size_tokens": BLOCK}
    defined = CATALOG.run(session, "reuse/definitions", params).frame
    ratio = dict(defined.select("definition", "ratio").rows())
    params["least_difference"] = 1e-9
    rows = CATALOG.run(session, "reuse/definitions_explained", params).frame.rows(named=True)
    for row in rows:
        assert row["ratio"] == ratio[row["definition"]]
        assert row["other_ratio"] == ratio[row["other_definition"]]
        assert abs(row["difference"]) >= 1e-9
    told = {(row["definition"], row["other_definition"]) for row in rows}
    base = ratio["reusable_tokens"]
    for name in ("reusable_blocks", "reusable_tokens_warm", "requests_with_reuse", "engine_tokens"):
        differs = requests and abs(ratio[name] - base) >= 1e-9
        assert ((name, "reusable_tokens") in told) == bool(differs)


GROUPS: dict[str, tuple[str, list[Value]]] = {
    "reuse/by_llm": ("llm", ["x", "y", None]),
    "reuse/by_adapter": ("adapter", ["x", "y", None]),
    "reuse/by_request_type": ("request_type", ["x", "y", None]),
    "reuse/by_tenant": ("tenant_key", [9, 4, None]),
    "reuse/by_user": ("user_key", [9, 4, None]),
    "reuse/by_session": ("session_key", [9, 4, None]),
}


@pytest.mark.parametrize("query", GROUPS)
@given(timed_trees(), st.lists(st.integers(0, 2), min_size=16, max_size=16), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_groups_add_up_to_the_summary(
    query: str, session: Session, requests: list[Traced], picks: list[int], top: int
) -> None:
    column, values = GROUPS[query]
    for request, pick in zip(requests, picks, strict=False):
        request.columns[column] = values[pick]
    load(session, requests)
    frame = CATALOG.run(session, query, {"top": top}).frame
    if all(request.columns[column] is None for request in requests):
        assert frame.is_empty()
        return
    summary = CATALOG.run(session, "reuse/summary").frame
    for name in ("requests", "block_refs", "reusable_blocks", "prompt_tokens", "reusable_tokens"):
        assert frame[name].sum() == summary[name][0]
    assert frame["groups"].sum() == len({request.columns[column] for request in requests})
    assert frame["is_rest"].sum() == (len(frame) > top)
    assert "9" not in "".join(label or "" for label in frame["label"])
    labels = labels_of(column, [request.columns[column] for request in requests])
    for row in frame.filter(~frame["is_rest"]).rows(named=True):
        both = zip(unlimited(requests), labels, strict=True)
        mine = [one for one, label in both if label == row["label"]]
        assert row["reusable_tokens"] == sum(one.tokens(one.hit) for one in mine)
        assert row["prompt_tokens"] == sum(one.prompt for one in mine)


def labels_of(column: str, values: list[Value]) -> list[str | None]:
    """The label of each request: a name as it is, a key by its rank of first appearance."""
    named = list(dict.fromkeys(value for value in values if value is not None))
    if not column.endswith("_key"):
        return [None if value is None else str(value) for value in values]
    word = column.removesuffix("_key")
    return [None if value is None else f"{word} {named.index(value) + 1}" for value in values]


def test_groupings_have_one_shape() -> None:
    shapes = {
        tuple((column.name, column.unit) for column in CATALOG.describe(name).columns)
        for name in GROUPS
    }
    assert len(shapes) == 1


def test_definitions_and_their_explanation_count_alike() -> None:
    shared = [
        CATALOG.describe(name).sql.partition("with domains as")[2].partition("from per_request\n),")
        for name in ("reuse/definitions", "reuse/definitions_explained")
    ]
    until_pairs = [text[2].partition("),\n")[0] for text in shared]
    assert shared[0][0] == shared[1][0] != ""
    assert until_pairs[0] == until_pairs[1] != ""
