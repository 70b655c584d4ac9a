"""The `pool_hits` table: what private caches serve, and what one shared pool serves beyond them.

Of an instance: HBM first, then its idle DRAM, which takes what HBM evicts, so that both together
are one LRU cache of their sum. The pool keeps every block that any instance computes and renews it
at every use (inclusive), so that it is one LRU cache of all requests. Both keep prefixes longer
than their tails, so a request's hit in either is the longer of the two, and what the pool adds is
the rest, request by request: exact where ids are chained.

A pool that takes only what instances evict (exclusive) is no cut of these curves for more than one
instance; for one it is an LRU cache of the sum, as DRAM here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from kvtrace.reuse.capacities import round_capacities
from kvtrace.reuse.parents import conversations_of
from kvtrace.reuse.pooling.cuts import Cuts, build_cuts
from kvtrace.reuse.pooling.kv_centric import MATCH_WEIGHT
from kvtrace.reuse.pooling.routing import Routing, depends_on_capacity, route
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.schema.facts import POOL_HITS

GRID_DEPTH = 500
"""The default grid reaches down to a 500th of the distinct blocks."""


@dataclass(frozen=True, slots=True)
class Level:
    """Sizes of caches: two of each instance, one of all together; 0: there is none."""

    hbm_blocks: int
    dram_blocks: int
    pool_blocks: int

    @property
    def private_blocks(self) -> int:
        """What an instance has for itself."""
        return self.hbm_blocks + self.dram_blocks


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What is to be computed."""

    cache_domain: int
    instances: tuple[int, ...]
    routings: tuple[Routing, ...]
    total_capacities: tuple[int, ...]
    """Blocks of all private caches together; each instance gets an equal part, rounded down."""
    levels: tuple[Level, ...]
    """Private caches with a pool above them."""
    match_weight: int = MATCH_WEIGHT
    """Of the KV-centric routings."""

    def of(self, instances: int, distinct_blocks: int) -> tuple[Level, ...]:
        """The cases for so many instances: private, pooled with the same bytes, and the levels.

        Beside the capacities asked for, one without limit: every instance holds every block.
        """
        each = {total // instances for total in self.total_capacities if total >= instances}
        each.add(distinct_blocks)
        private = {Level(size, 0, 0) for size in each}
        pooled = {Level(0, 0, instances * size) for size in each}
        alone = {Level(one.hbm_blocks, one.dram_blocks, 0) for one in self.levels}
        found = private | pooled | alone | set(self.levels)
        return tuple(
            sorted(found, key=lambda one: (one.hbm_blocks, one.dram_blocks, one.pool_blocks))
        )


def default_totals(distinct_blocks: int) -> tuple[int, ...]:
    """Round capacities that show the curve of so many distinct blocks, and that number."""
    least = max(1, distinct_blocks // GRID_DEPTH)
    return (*round_capacities(least, distinct_blocks), distinct_blocks)


def build_pool_hits(trace: RequestTrace, plan: PoolPlan) -> pl.DataFrame:
    """The `pool_hits` table of this trace; no rows without blocks."""
    if not trace.distinct_blocks:
        return POOL_HITS.empty()
    walk = _Walk(trace, plan)
    rows = [
        row
        for routing in plan.routings
        for instances in plan.instances
        for row in walk.rows(routing, instances)
    ]
    frame = pl.DataFrame(rows, schema=POOL_HITS.polars_schema(), orient="row")
    return frame.sort(POOL_HITS.order_by)


class _Walk:
    """What all cases of one trace share: the pool's curve, the conversations, the prompts."""

    def __init__(self, trace: RequestTrace, plan: PoolPlan) -> None:
        self._trace = trace
        self._plan = plan
        self._blocks = trace.blocks_per_request()
        in_blocks = self._blocks * trace.block_size_tokens
        self._in_blocks = np.minimum(in_blocks, trace.prompt_tokens)
        self._pool = build_cuts(trace, np.zeros(trace.requests, dtype=np.int64))
        self._in_pool: dict[int, IntArray] = {}
        sticky = "session_sticky" in plan.routings
        self._conversation = conversations_of(trace).conversation if sticky else None

    def rows(self, routing: Routing, instances: int) -> Iterator[tuple[object, ...]]:
        """One row a case, in the order of the table's columns."""
        routed: dict[int | None, tuple[IntArray, Cuts]] = {}
        for level in self._plan.of(instances, self._trace.distinct_blocks):
            size = level.private_blocks if depends_on_capacity(routing) else None
            if size not in routed:
                instance = route(
                    self._trace,
                    routing,
                    instances,
                    capacity_blocks=size,
                    conversation=self._conversation,
                    match_weight=self._plan.match_weight,
                )
                routed[size] = (instance, build_cuts(self._trace, instance))
            head = (self._plan.cache_domain, routing, instances)
            yield (*head, *self._row(level, instances, *routed[size]))

    def _row(self, level: Level, instances: int, instance: IntArray, cuts: Cuts) -> tuple[int, ...]:
        """The figures of one case, from the level's sizes on."""
        in_hbm = cuts.hit_blocks(level.hbm_blocks)
        private = cuts.hit_blocks(level.private_blocks)
        served = np.maximum(private, self._pool_hits(level.pool_blocks))
        blocks = [int(one.sum()) for one in (in_hbm, private, served)]
        tokens = [int(self._tokens(one).sum()) for one in (in_hbm, private, served)]
        prompt = self._trace.prompt_tokens
        computed = prompt - self._tokens(served)
        return (
            level.hbm_blocks,
            level.dram_blocks,
            level.pool_blocks,
            blocks[0],
            tokens[0],
            blocks[1] - blocks[0],
            tokens[1] - tokens[0],
            blocks[2] - blocks[1],
            tokens[2] - tokens[1],
            self._trace.requests,
            int(self._blocks.sum()),
            int(prompt.sum()),
            _most(instance, prompt, instances),
            _most(instance, computed, instances),
        )

    def _pool_hits(self, pool_blocks: int) -> IntArray:
        """(requests,) blocks that the pool alone serves, whatever the routing."""
        if pool_blocks not in self._in_pool:
            self._in_pool[pool_blocks] = self._pool.hit_blocks(pool_blocks)
        return self._in_pool[pool_blocks]

    def _tokens(self, hit_blocks: IntArray) -> IntArray:
        """(requests,) prompt tokens in so many leading blocks."""
        whole = hit_blocks * self._trace.block_size_tokens
        return np.asarray(np.minimum(whole, self._in_blocks), dtype=np.int64)


def _most(instance: IntArray, tokens: IntArray, instances: int) -> int:
    """The tokens of the instance that has most."""
    sums = np.zeros(instances, dtype=np.int64)
    np.add.at(sums, instance, tokens)
    return int(sums.max())
