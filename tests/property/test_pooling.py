"""Routed private caches and a pool above them against step-by-step simulation in plain Python."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.reuse.parents import conversations_of
from kvtrace.reuse.pooling import ROUTINGS, Level, PoolPlan, Routing, build_pool_hits, route
from kvtrace.reuse.pooling.cuts import build_cuts
from kvtrace.reuse.trace import build_trace
from kvtrace.schema.arrays import RequestTrace
from tests.property.test_reuse_lru import any_ids, simulate_lru, trees
from tests.traces import Traced, domain, tables

BLOCK = 4
routings = st.sampled_from(ROUTINGS)


@dataclass
class Lru:
    """A cache of whole blocks, touched one by one."""

    capacity: int
    held: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def touch(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            self.held[block] = None
            self.held.move_to_end(block)
            if len(self.held) > self.capacity:
                self.held.popitem(last=False)


def leading(blocks: Sequence[int], *held: OrderedDict[int, None] | set[int]) -> int:
    """Blocks of the longest prefix that some of the caches hold, block by block."""
    for depth, block in enumerate(blocks):
        if not any(block in one for one in held):
            return depth
    return len(blocks)


def made(requests: list[Traced]) -> tuple[list[list[int]], RequestTrace]:
    """Requests with blocks, as lists and as the trace of them."""
    requests = [one for one in requests if one.blocks] or [Traced([0])]
    frames = tables(requests, block_size_tokens=BLOCK)
    trace = build_trace(frames["requests"], frames["blocks"], domain(block_size_tokens=BLOCK))
    return [list(one.blocks) for one in requests], trace


def simulate(
    blocks: list[list[int]], instance: list[int], level: Level
) -> list[tuple[int, int, int]]:
    """(HBM, DRAM, pool) blocks of each request: HBM and DRAM together one LRU cache."""
    count = max(instance) + 1
    hbm = [Lru(level.hbm_blocks) for _ in range(count)]
    private = [Lru(level.private_blocks) for _ in range(count)]
    pool = Lru(level.pool_blocks)
    found = []
    for own, at in zip(blocks, instance, strict=True):
        in_hbm = leading(own, hbm[at].held)
        in_private = leading(own, private[at].held)
        anywhere = leading(own, private[at].held, pool.held)
        found.append((in_hbm, in_private - in_hbm, anywhere - in_private))
        for cache in (hbm[at], private[at], pool):
            cache.touch(own)
    return found


@given(trees() | any_ids, routings, st.integers(1, 4), st.integers(0, 12))
def test_cuts_equal_private_caches_step_by_step(
    requests: list[Traced], routing: Routing, instances: int, capacity: int
) -> None:
    blocks, trace = made(requests)
    instance = route(trace, routing, instances, capacity_blocks=capacity)
    expected = [0] * len(blocks)
    for number in range(instances):
        places = [i for i, at in enumerate(instance) if at == number]
        for i, hit in zip(places, simulate_lru([blocks[i] for i in places], capacity), strict=True):
            expected[i] = hit
    assert build_cuts(trace, instance).hit_blocks(capacity).tolist() == expected


@given(
    trees(),
    routings,
    st.integers(1, 3),
    st.builds(Level, st.integers(0, 6), st.integers(0, 6), st.integers(0, 15)),
)
def test_rows_equal_two_private_tiers_and_a_pool_step_by_step(
    requests: list[Traced], routing: Routing, instances: int, level: Level
) -> None:
    blocks, trace = made(requests)
    instance = route(trace, routing, instances, capacity_blocks=level.private_blocks).tolist()
    found = simulate(blocks, instance, level)
    hits = [sum(one) for one in zip(*found, strict=True)]
    prompts = trace.prompt_tokens.tolist()
    tokens = [
        sum(
            min(sum(one[:depth]) * BLOCK, prompt)
            for one, prompt in zip(found, prompts, strict=True)
        )
        for depth in (1, 2, 3)
    ]
    computed = [0] * instances
    for one, prompt, at in zip(found, prompts, instance, strict=True):
        computed[at] += prompt - min(sum(one) * BLOCK, prompt)
    plan = PoolPlan(0, (instances,), (routing,), (), (level,))
    row = build_pool_hits(trace, plan).filter(
        hbm_blocks=level.hbm_blocks, dram_blocks=level.dram_blocks, pool_blocks=level.pool_blocks
    )
    got = row.row(0, named=True)
    assert [got[f"{tier}_hit_blocks"] for tier in ("hbm", "dram", "pool")] == hits
    assert got["hbm_hit_tokens"] == tokens[0]
    assert got["dram_hit_tokens"] == tokens[1] - tokens[0]
    assert got["pool_hit_tokens"] == tokens[2] - tokens[1]
    assert got["busiest_computed_tokens"] == max(computed)
    assert (got["requests"], got["prompt_tokens"]) == (len(blocks), sum(prompts))
    assert got["block_refs"] == sum(map(len, blocks))


@given(trees() | any_ids, st.integers(1, 4), st.integers(1, 40), st.sampled_from([1, 3, 16]))
def test_kv_centric_equals_its_rule_step_by_step(
    requests: list[Traced], instances: int, capacity: int, weight: int
) -> None:
    blocks, trace = made(requests)
    for routing, size in (("kv_centric", 10**9), ("kv_centric_exact", capacity)):
        caches = [Lru(size) for _ in range(instances)]
        computed = [0] * instances
        expected = []
        for own in blocks:
            matched = [leading(own, cache.held) for cache in caches]
            score = [computed[i] - weight * matched[i] for i in range(instances)]
            best = min(range(instances), key=lambda i: (score[i], computed[i], i))
            expected.append(best)
            computed[best] += len(own) - matched[best]
            caches[best].touch(own)
        got = route(
            trace,
            "kv_centric" if routing == "kv_centric" else "kv_centric_exact",
            instances,
            capacity_blocks=capacity,
            match_weight=weight,
        )
        assert got.tolist() == expected, routing


@given(trees(), st.integers(1, 4))
def test_a_conversation_stays_where_it_opened(requests: list[Traced], instances: int) -> None:
    _, trace = made(requests)
    instance = route(trace, "session_sticky", instances)
    home: dict[int, int] = {}
    sent = [0] * instances
    talks = conversations_of(trace).conversation.tolist()
    for talk, at, tokens in zip(talks, instance, trace.prompt_tokens.tolist(), strict=True):
        if talk not in home:
            assert sent[at] == min(sent)
        assert home.setdefault(talk, at) == at
        sent[at] += tokens


@given(trees() | any_ids, routings, st.integers(1, 20))
def test_one_instance_is_the_pool_of_the_same_bytes(
    requests: list[Traced], routing: Routing, capacity: int
) -> None:
    _, trace = made(requests)
    frame = build_pool_hits(trace, PoolPlan(0, (1,), (routing,), (capacity,), ()))
    private = frame.filter(pool_blocks=0).select("hbm_hit_blocks", "hbm_hit_tokens")
    pooled = frame.filter(hbm_blocks=0, dram_blocks=0).select("pool_hit_blocks", "pool_hit_tokens")
    assert private.rows() == pooled.rows()


@given(trees() | any_ids, routings, st.integers(1, 4), st.integers(1, 20))
def test_an_unlimited_pool_serves_at_least_what_any_private_caches_do(
    requests: list[Traced], routing: Routing, instances: int, capacity: int
) -> None:
    _, trace = made(requests)
    frame = build_pool_hits(trace, PoolPlan(0, (instances,), (routing,), (capacity,), ()))
    most = frame.filter(pool_blocks=instances * trace.distinct_blocks)["pool_hit_blocks"][0]
    assert (frame["hbm_hit_blocks"] <= most).all()
    assert (frame["hbm_hit_blocks"] + frame["pool_hit_blocks"] <= frame["block_refs"]).all()


@given(trees() | any_ids, routings, st.integers(1, 4))
def test_larger_private_caches_never_lose_hits_where_the_routing_stays(
    requests: list[Traced], routing: Routing, instances: int
) -> None:
    _, trace = made(requests)
    cuts = build_cuts(trace, route(trace, routing, instances, capacity_blocks=5))
    hits = [cuts.hit_blocks(capacity) for capacity in range(trace.distinct_blocks + 2)]
    for smaller, larger in pairwise(hits):
        assert (smaller <= larger).all()


def test_a_pool_of_the_same_bytes_may_serve_less_than_private_caches() -> None:
    # Two instances by turns, 1 block each: [1] comes to instance 0 every time, fresh blocks to the
    # other. Privately 1 stays cached: 2 hits. In a pool of 2 blocks, 1 is 2 blocks back after
    # [2, 3], so that it is gone each time: 0 hits.
    requests = [Traced([1]), Traced([2, 3]), Traced([1]), Traced([4, 5]), Traced([1])]
    _, trace = made(requests)
    frame = build_pool_hits(trace, PoolPlan(0, (2,), ("round_robin",), (2,), ()))
    assert frame.filter(hbm_blocks=1, pool_blocks=0)["hbm_hit_blocks"].to_list() == [2]
    assert frame.filter(hbm_blocks=0, pool_blocks=2)["pool_hit_blocks"].to_list() == [0]


def test_a_trace_without_blocks_has_no_rows() -> None:
    requests = [Traced(columns={"prompt_tokens": 5})]
    frames = tables(requests, block_size_tokens=BLOCK)
    trace = build_trace(frames["requests"], frames["blocks"], domain(block_size_tokens=BLOCK))
    plan = PoolPlan(0, (2,), ROUTINGS, (10,), (Level(1, 1, 1),))
    assert build_pool_hits(trace, plan).is_empty()


@pytest.mark.parametrize(("instances", "routing"), [(0, "round_robin"), (2, "kv_centric_exact")])
def test_routing_needs_instances_and_a_capacity_where_it_depends_on_it(
    instances: int, routing: Routing
) -> None:
    _, trace = made([Traced([1])])
    with pytest.raises(ValueError, match=r"instances|capacity"):
        route(trace, routing, instances)


def test_round_robin_is_by_arrival() -> None:
    _, trace = made([Traced([i]) for i in range(5)])
    assert np.array_equal(route(trace, "round_robin", 3), [0, 1, 2, 0, 1])
