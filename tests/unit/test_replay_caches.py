"""Block caches under every policy: against the policy facts, and under what facts do not know."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from kvtrace.replay.blockmap import BlockMap, whole_blocks
from kvtrace.replay.blocks import build_atoms
from kvtrace.replay.caches import BlockCache, Clock
from kvtrace.replay.engine import simulate
from kvtrace.replay.scenario import EvictionPolicy
from kvtrace.reuse.policies.blocks import block_trace
from kvtrace.reuse.policies.run import serve
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import KV_BYTES, Ask, dram_tier, links, make_scenario, make_trace
from tests.unit.replay_cases import pool_tier as pool

BLOCK = 10
POLICIES: tuple[EvictionPolicy, ...] = get_args(EvictionPolicy)


@pytest.fixture(scope="module")
def trace() -> RequestTrace:
    """240 requests down a tree of up to eight levels, some of them over and over."""
    draws = np.random.Generator(np.random.PCG64(11))
    asks = []
    for index in range(240):
        width = 2 if draws.random() < 0.6 else 9
        path = [int(step) for step in draws.integers(0, width, size=1 + int(draws.integers(8)))]
        asks.append(Ask(float(index), [tuple(path[: depth + 1]) for depth in range(len(path))]))
    return make_trace(asks)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("blocks", [12, 45])
def test_a_tier_serves_what_the_policy_facts_say(
    trace: RequestTrace, policy: EvictionPolicy, blocks: int
) -> None:
    facts = block_trace(trace)
    served = serve(facts, policy, [blocks], mode="python")[0]
    tier = replace(pool(capacity_bytes=KV_BYTES * BLOCK * blocks), policy=policy)
    scenario = make_scenario(
        idealised=True,
        hbm_capacity_bytes=0.0,
        tiers=(tier,),
        links=links(pcie=1e9, nic=1e9, pool=1e9),
    )
    hits = simulate(trace, scenario).timeline.hit_tokens["pool"]
    assert hits.tolist() == facts.tokens_of(served.hit_blocks).tolist()
    assert hits.sum() > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_keeps_its_room_and_its_leases(trace: RequestTrace, policy: EvictionPolicy) -> None:
    table = build_atoms(trace)
    blocks = BlockMap(table, block_tokens=BLOCK, pad=[0] * trace.requests)
    spec = replace(pool(), policy=policy, lease_s=3.0, high_watermark=0.9, low_watermark=0.7)
    clock = Clock()
    cache = BlockCache(spec, 30, blocks, clock)
    draws = np.random.Generator(np.random.PCG64(5))
    leases: dict[int, float] = {}
    for request in range(trace.requests):
        clock.now = float(request)
        lo, end = table.offset[request], table.offset[request + 1]
        wanted = blocks.of_request(request)
        found = cache.extend(table.atoms, lo, 0, end)[2]
        leases |= dict.fromkeys(wanted[:found], clock.now + 3.0)
        if draws.random() < 0.2:
            cache.drop(wanted[:2])
            leases = {block: until for block, until in leases.items() if block not in wanted[:2]}
        elif draws.random() < 0.3:
            cache.renew(table.atoms, lo, end)
        else:
            cache.store(wanted)
        assert cache.used <= 27
        assert all(block in cache for block, until in leases.items() if until > clock.now)
    assert cache.evicted == len(cache.victims) > 0
    for atom in range(len(table.blocks)):
        held = [block in cache for block in blocks.atom(atom)]
        lead = held.index(False) if False in held else len(held)
        assert cache.stored.get(atom, 0) == lead


def test_a_block_that_is_not_admitted_is_asked_for_again() -> None:
    table = build_atoms(make_trace([Ask(0.0, range(4))]))
    blocks = BlockMap(table, block_tokens=BLOCK, pad=[3])
    expected: dict[EvictionPolicy, list[int]] = {"lru": [], "flat_fifo": [2]}
    for policy, kept in expected.items():
        spec = replace(pool(), policy=policy, admission_uses=2)
        cache = BlockCache(spec, 4, blocks, Clock())
        cache.note([2])
        cache.note([0, 1, 2, 3])
        # only block 2 was asked for twice; a cache of prefixes stops at block 0
        assert cache.lacking([0, 1, 2, 3]) == kept
        cache.store([0, 1, 2, 3])
        assert cache.used == len(kept)
    assert blocks.tokens([2, 3]) == 20 - 3


@pytest.mark.parametrize(
    ("tokens", "unit", "blocks"), [(35, 20, 2), (19, 20, 0), (35, 10, 3), (35, 4, 4), (33, 7, 3)]
)
def test_whole_units_in_blocks_of_the_trace(tokens: int, unit: int, blocks: int) -> None:
    assert whole_blocks(tokens, unit, BLOCK) == blocks


def test_a_warm_tier_below_evictions_holds_what_hbm_does_not() -> None:
    # HBM and the exclusive tier hold two blocks each: after a, b, c, d of one block each they are
    # {c, d} and {a, b}; the replayed request for a finds it below.
    tier = replace(
        dram_tier(capacity_bytes=KV_BYTES * 20), write_moment="on_evict", inclusion="exclusive"
    )
    scenario = make_scenario(
        hbm_capacity_bytes=KV_BYTES * 20,
        tiers=(tier,),
        links=links(pcie=1000.0),
    )
    asks = [Ask(float(index), [label, label + "2"]) for index, label in enumerate("abca")]
    cold = make_trace(asks)
    hits = simulate(replace(cold), replace(scenario, idealised=True), warmup_requests=3).timeline
    # two blocks of c are in HBM, two of b below: a is gone
    assert hits.hit_tokens["host_dram"].tolist() == [0]
    again = make_trace([*asks[:3], Ask(9.0, ["b", "b2"])])
    hits = simulate(again, replace(scenario, idealised=True), warmup_requests=3).timeline
    assert hits.hit_tokens["host_dram"].tolist() == [20]
