"""The reuse facts against a step-by-step LRU cache, on traces that are trees and on any ids."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.reuse.distance import fenwick_weights
from kvtrace.reuse.facts import build_reuse
from kvtrace.reuse.trace import build_trace
from tests.traces import Traced, domain, tables

BLOCK = 4


def simulate_lru(requests: Sequence[Sequence[int]], capacity: int) -> list[int]:
    """Hit blocks of each request: look up the leading run, then touch tail to head."""
    cached: OrderedDict[int, None] = OrderedDict()
    hits = []
    for blocks in requests:
        hit = 0
        while hit < len(blocks) and blocks[hit] in cached:
            hit += 1
        hits.append(hit)
        for block in reversed(blocks):
            cached[block] = None
            cached.move_to_end(block)
            if len(cached) > capacity:
                cached.popitem(last=False)
    return hits


def hits_from_facts(reuse: pl.DataFrame, requests: int, capacity: int) -> list[int]:
    """The same from the facts: clamp(C - d + 1, 0, length) summed over the request's atoms."""
    hits = [0] * requests
    columns = ("request_key", "block_count", "distance_blocks")
    for key, count, distance in reuse.filter("is_reusable").select(columns).iter_rows():
        hits[key] += min(max(capacity - distance + 1, 0), count)
    return hits


@st.composite
def trees(draw: st.DrawFn) -> list[Traced]:
    """Requests that extend prefixes of earlier requests: every block has one predecessor."""
    requests: list[Traced] = []
    fresh = 0
    for _ in range(draw(st.integers(1, 14))):
        blocks: list[int] = []
        if requests:
            parent = requests[draw(st.integers(0, len(requests) - 1))]
            whole = len(parent.blocks) - (parent.tail_tokens > 0)
            blocks = list(parent.blocks[: draw(st.integers(0, whole))])
        new = draw(st.integers(0, 5))
        blocks += range(fresh, fresh + new)
        fresh += new
        tail = draw(st.integers(0, BLOCK - 1)) if new else 0
        requests.append(Traced(blocks, tail_tokens=tail))
    return requests


any_ids = st.lists(
    st.lists(st.integers(0, 9), max_size=8).map(lambda blocks: Traced(blocks)),
    min_size=1,
    max_size=12,
)


@given(trees() | any_ids)
@settings(max_examples=200, deadline=None)
def test_facts_equal_a_step_by_step_lru_at_every_capacity(requests: list[Traced]) -> None:
    reuse = tables(requests, block_size_tokens=BLOCK)["reuse"]
    blocks = [request.blocks for request in requests]
    distinct = len({block for one in blocks for block in one})
    for capacity in range(1, distinct + 2):
        assert hits_from_facts(reuse, len(requests), capacity) == simulate_lru(blocks, capacity)


@given(trees() | any_ids)
@settings(max_examples=100, deadline=None)
def test_unlimited_cache_hits_what_is_reusable(requests: list[Traced]) -> None:
    reuse = tables(requests, block_size_tokens=BLOCK)["reuse"]
    unlimited = simulate_lru([request.blocks for request in requests], 10**9)
    reusable = [0] * len(requests)
    for key, count in reuse.filter("is_reusable").select("request_key", "block_count").iter_rows():
        reusable[key] += count
    assert reusable == unlimited


@given(trees() | any_ids)
@settings(max_examples=100, deadline=None)
def test_facts_are_within_the_prompt_and_cover_it(requests: list[Traced]) -> None:
    made = tables(requests, block_size_tokens=BLOCK)
    covered = (
        made["reuse"]
        .group_by("request_key")
        .agg(
            pl.col("block_count", "token_count").sum(),
            pl.col("token_count").filter("is_reusable").sum().alias("reusable"),
        )
    )
    prompts = dict(made["requests"].select("request_key", "prompt_tokens").iter_rows())
    for key, blocks, tokens, reusable in covered.iter_rows():
        assert blocks == len(requests[key].blocks)
        assert tokens == prompts[key]
        assert reusable <= tokens


@given(trees() | any_ids)
@settings(max_examples=100, deadline=None)
def test_distances_increase_along_each_request(requests: list[Traced]) -> None:
    reuse = tables(requests, block_size_tokens=BLOCK)["reuse"].filter("is_reusable")
    for distance in ("distance_blocks", "distance_tokens"):
        steps = reuse.select(pl.col(distance).diff().over("request_key").drop_nulls())
        assert (steps.to_series() >= 0).all()
    assert (reuse["distance_tokens"] >= 1).all()
    assert (reuse["distance_tokens"] <= BLOCK * reuse["distance_blocks"]).all()


@given(trees() | any_ids, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_row_order_and_splitting_of_the_input_change_nothing(
    requests: list[Traced], order: random.Random
) -> None:
    made = tables(requests, block_size_tokens=BLOCK)
    seed = order.randrange(2**32)
    rows = made["requests"].sample(fraction=1.0, shuffle=True, seed=seed)
    pieces = _split_runs(made["blocks"]).sample(fraction=1.0, shuffle=True, seed=seed)
    again = build_reuse(rows, pieces, [domain(block_size_tokens=BLOCK)])
    assert again.equals(made["reuse"])


def _split_runs(blocks: pl.DataFrame) -> pl.DataFrame:
    """Every run as single blocks: another way to write the same requests."""
    singles = blocks.with_columns(
        pl.int_ranges(pl.col("block_count")).alias("within"), pl.col("block_count").alias("whole")
    ).explode("within")
    return singles.with_columns(
        (pl.col("position") + pl.col("within")).cast(pl.Int32).alias("position"),
        pl.col("start_block") + pl.col("within"),
        pl.lit(1, dtype=pl.Int32).alias("block_count"),
        pl.when(pl.col("within") == pl.col("whole") - 1)
        .then("tail_tokens")
        .otherwise(pl.lit(0, dtype=pl.Int32))
        .alias("tail_tokens"),
    ).select(blocks.columns)


@given(trees() | any_ids)
@settings(max_examples=50, deadline=None)
def test_names_of_the_blocks_change_nothing(requests: list[Traced]) -> None:
    renamed = [
        Traced([1_000 - block for block in request.blocks], tail_tokens=request.tail_tokens)
        for request in requests
    ]
    before = tables(requests, block_size_tokens=BLOCK)["reuse"]
    assert tables(renamed, block_size_tokens=BLOCK)["reuse"].equals(before)


@given(trees() | any_ids)
@settings(max_examples=100, deadline=None)
def test_trace_has_the_same_requests_in_dense_ids_of_first_appearance(
    requests: list[Traced],
) -> None:
    requests = [request for request in requests if request.blocks]
    made = tables(requests, block_size_tokens=BLOCK)
    trace = build_trace(made["requests"], made["blocks"], domain(block_size_tokens=BLOCK))
    rank: dict[int, int] = {}
    expected = [[rank.setdefault(b, len(rank)) for b in request.blocks] for request in requests]
    unrolled = [
        [
            int(start) + step
            for run in range(trace.run_offset[i], trace.run_offset[i + 1])
            for start in [trace.run_start[run]]
            for step in range(trace.run_blocks[run])
        ]
        for i in range(trace.requests)
    ]
    assert unrolled == expected
    assert trace.distinct_blocks == len(rank)


def test_fenwick_kernel_is_bit_equal_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvtrace.reuse.distance.compiled_weights", lambda: fenwick_weights)
    for seed in range(40):
        requests = random_requests(random.Random(seed))
        by_numpy = tables(requests, block_size_tokens=BLOCK, kernel="numpy")["reuse"]
        by_fenwick = tables(requests, block_size_tokens=BLOCK, kernel="numba")["reuse"]
        assert by_fenwick.equals(by_numpy)


@pytest.mark.slow
def test_compiled_kernel_is_bit_equal_to_numpy() -> None:
    for seed in range(30):
        requests = random_requests(random.Random(seed))
        by_numpy = tables(requests, block_size_tokens=BLOCK, kernel="numpy")["reuse"]
        by_numba = tables(requests, block_size_tokens=BLOCK, kernel="numba")["reuse"]
        assert by_numba.equals(by_numpy)


def random_requests(rng: random.Random) -> list[Traced]:
    """Half tree-like, half arbitrary ids."""
    requests: list[Traced] = []
    for _ in range(rng.randrange(1, 60)):
        if requests and rng.random() < 0.7:
            parent = rng.choice(requests).blocks
            keep = rng.randrange(len(parent) + 1)
            blocks = [*parent[:keep], *(rng.randrange(500) for _ in range(rng.randrange(6)))]
        else:
            blocks = [rng.randrange(30) for _ in range(rng.randrange(12))]
        requests.append(Traced(blocks, tail_tokens=rng.randrange(BLOCK) if blocks else 0))
    return requests
