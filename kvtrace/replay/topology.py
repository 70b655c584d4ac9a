"""A scenario made ready to run: links with numbers, routes of every stage, one cache per tier."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from kvtrace.errors import UsageError
from kvtrace.replay.blockmap import BlockMap
from kvtrace.replay.blocks import AtomTable, LruCache
from kvtrace.replay.caches import BlockCache, Clock
from kvtrace.replay.scenario import (
    HandoffSpec,
    Scenario,
    StageSpec,
    ThrottledMoves,
    TierSpec,
)
from kvtrace.replay.tails import Tails, draw_tails

MAX_BLOCKS: Final = 1 << 62
NO_ROUTE: Final = -1


class Leg(NamedTuple):
    """One stage of a move, for one instance."""

    kind: Literal["pull", "load"]
    latency_s: float
    route: int
    """Index in the flow net, or NO_ROUTE: the stage is its latency alone."""


@dataclass(slots=True)
class Writer:
    """Writes of one instance to one tier: one at a time, first come first served."""

    legs: tuple[Leg, ...]
    waiting: deque[int] = field(default_factory=deque)
    """Requests whose blocks wait to be written."""
    demoted: list[int] = field(default_factory=list)
    """Blocks that wait to be written since they were evicted above, in order of eviction."""
    is_busy: bool = False


@dataclass(slots=True)
class Tier:
    """A tier that can be used: its caches and legs by instance."""

    spec: TierSpec
    index: int
    caches: Sequence[LruCache | BlockCache]
    """(instances,) the same object everywhere when the tier is shared."""
    reads: list[tuple[Leg, ...]]
    writers: list[Writer]
    tails: Tails | None = None
    """None: lookups and loads take what they take, and do not fail."""
    plain: Sequence[LruCache] = ()
    """(instances,) its caches if they are LRU over whole atoms; else empty."""
    fine: Sequence[BlockCache] = ()
    """(instances,) its caches if they work block by block; else empty."""
    below: Tier | None = None
    """The tier that is given what this one evicts."""
    holds_hbm: bool = False
    """As its spec says."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything about a scenario that does not change while it runs."""

    tiers: tuple[Tier, ...]
    link_ids: tuple[str, ...]
    """(links,) the kind of each physical link."""
    bytes_per_s: tuple[float, ...]
    routes: tuple[tuple[int, ...], ...]
    clock: Clock
    """What caches with lifetimes and leases go by; to be set before they are asked."""
    block_map: BlockMap | None = None
    """For caches that work block by block, where there are any."""
    below_hbm: Tier | None = None
    """The tier that is given what HBM evicts."""
    flow_bytes_per_s: float = math.inf
    """Most that one flow gets."""
    handoffs: Mapping[tuple[int, int], Leg] = field(default_factory=dict)
    """By prefill and decode instance: the way of a prompt's KV."""

    @property
    def takers(self) -> tuple[Tier, ...]:
        """The tiers that are written what requests generate."""
        return tuple(
            tier
            for tier in self.tiers
            if tier.spec.takes_generated and tier.spec.write_moment == "on_compute"
        )


def blocks_of(capacity_bytes: float, block_bytes: float) -> int:
    """Whole blocks that fit; an infinite capacity is a very large one."""
    if block_bytes <= 0 or capacity_bytes <= 0:
        return 0
    blocks = capacity_bytes / block_bytes
    return MAX_BLOCKS if blocks >= MAX_BLOCKS else math.floor(blocks + 1e-9)


def is_usable(tier: TierSpec, scenario: Scenario) -> bool:
    """False for a tier behind a link that moves nothing: zero bandwidth is no tier."""
    stages = (*tier.read, *tier.write)
    return all(scenario.links[link].bytes_per_s > 0 for stage in stages for link in stage.link_ids)


def is_special(tier: TierSpec) -> bool:
    """Whether the tier's cache is more than LRU over whole atoms."""
    return (
        tier.policy != "lru"
        or tier.write_moment != "on_compute"
        or tier.admission_uses > 1
        or tier.match_tokens > 0
        or min(tier.high_watermark, tier.low_watermark) < 1.0
        or tier.lease_s > 0.0
        or tier.ttl_s is not None
    )


class _Wiring:
    """Numbers links and routes as the stages ask for them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._links: dict[tuple[str, int], int] = {}
        self._routes: dict[tuple[int, ...], int] = {}
        self._rates = {link.link_id: link.bytes_per_s for link in scenario.links.values()}
        self._throttled = {(one.link_id, one.moves) for one in scenario.throttles}
        for one in scenario.throttles:
            name = _throttle_id(one.link_id, one.moves)
            self._rates[name] = min(one.bytes_per_s, self._rates.get(name, math.inf))

    def legs(
        self, stages: Sequence[StageSpec], instance: int, moves: ThrottledMoves
    ) -> tuple[Leg, ...]:
        """The legs of `stages` for one instance."""
        return tuple(
            Leg(
                stage.kind,
                stage.latency_s,
                self._route(self._numbers(stage.link_ids, instance, moves)),
            )
            for stage in stages
        )

    def handoffs(self) -> dict[tuple[int, int], Leg]:
        """The hand-off from each prefill instance to each decode instance."""
        scenario = self._scenario
        spec = scenario.handoff or HandoffSpec()
        first = scenario.prefill_instances
        if not first:
            return {}
        sends = {one: self._numbers(spec.out_link_ids, one, "handoffs") for one in range(first)}
        takes = {
            one: self._numbers(spec.in_link_ids, one, "handoffs")
            for one in range(first, scenario.instances)
        }
        return {
            (sender, taker): Leg("pull", spec.latency_s, self._route(out | into))
            for sender, out in sends.items()
            for taker, into in takes.items()
        }

    def reads(self, stages: Sequence[StageSpec], instance: int) -> tuple[Leg, ...]:
        """The legs of a load: one through all stages at once where chunks are pipelined.

        Formula: Σ latency + chunk · (Σ 1/rate - 1/slowest rate) until the last stage has its first
        chunk, rates of empty links; then all bytes at the rate of the slowest stage.
        """
        scenario = self._scenario
        if scenario.overlap != "pipelined" or len(stages) < 2:
            return self.legs(stages, instance, "reads")
        chunk = scenario.load_chunk_tokens * scenario.kv_bytes_per_token
        rates = [
            min(scenario.links[link_id].bytes_per_s for link_id in stage.link_ids)
            for stage in stages
            if stage.link_ids
        ]
        fill_s = chunk * (sum(1 / rate for rate in rates) - 1 / min(rates)) if rates else 0.0
        is_pull = any(stage.kind == "pull" for stage in stages)
        whole = StageSpec(
            "pull" if is_pull else "load",
            tuple(dict.fromkeys(link_id for stage in stages for link_id in stage.link_ids)),
            sum(stage.latency_s for stage in stages) + fill_s,
        )
        return self.legs((whole,), instance, "reads")

    def _route(self, numbers: AbstractSet[int]) -> int:
        links = tuple(sorted(numbers))
        return self._routes.setdefault(links, len(self._routes)) if links else NO_ROUTE

    def _numbers(
        self, link_ids: Sequence[str], instance: int, moves: ThrottledMoves
    ) -> frozenset[int]:
        """The links of an instance, and what throttles these moves on them."""
        numbers = []
        for link_id in link_ids:
            spec = self._scenario.links[link_id]
            place = -1 if spec.scope == "shared" else instance // spec.instances_per_link
            names = [link_id]
            if (link_id, moves) in self._throttled:
                names.append(_throttle_id(link_id, moves))
            numbers += [self._links.setdefault((one, place), len(self._links)) for one in names]
        return frozenset(numbers)

    def topology(self, tiers: Sequence[Tier], clock: Clock, block_map: BlockMap | None) -> Topology:
        """What was asked for, as flat tuples."""
        handoffs = self.handoffs()
        ids = tuple(link_id for link_id, _ in self._links)
        scenario = self._scenario
        for above, tier in pairwise(tiers):
            above.below = tier if tier.spec.write_moment == "on_evict" else None
        is_below_hbm = bool(tiers) and tiers[0].spec.write_moment == "on_evict"
        return Topology(
            tuple(tiers),
            ids,
            tuple(self._rates[link_id] for link_id in ids),
            tuple(self._routes),
            clock,
            block_map,
            tiers[0] if is_below_hbm else None,
            flow_bytes_per_s=scenario.request_bytes_per_s or math.inf,
            handoffs=handoffs,
        )


def _throttle_id(link_id: str, moves: ThrottledMoves) -> str:
    """The name of what some moves may take of a link, which is as a link of its own."""
    return f"{link_id}:{moves}"


def check_scenario(scenario: Scenario) -> None:
    """Refuse a scenario that cannot be replayed.

    Raises:
        UsageError: no instance, an unknown link, or a number that is no quantity.
    """
    faults = scenario_faults(scenario)
    if faults:
        raise UsageError(
            "KVT-R001",
            f"scenario `{scenario.option_id}` cannot be replayed: {faults[0]}",
            cause="\n".join(faults[1:]) or None,
            hint="correct what the scenario states; docs/replay.md has the keys of files",
        )


def scenario_faults(scenario: Scenario) -> list[str]:
    """What keeps a scenario from being replayed, a sentence each."""
    faults = [
        f"tier `{tier.tier_id}` crosses the unknown link `{link_id}`"
        for tier in scenario.tiers
        for stage in (*tier.read, *tier.write)
        for link_id in stage.link_ids
        if link_id not in scenario.links
    ]
    faults += [fault for tier in scenario.tiers for fault in _tier_faults(tier)]
    if scenario.layers < 1 or min(scenario.load_chunk_tokens, scenario.load_threshold_tokens) < 0:
        faults.append("its layers, chunks or threshold are no counts")
    if scenario.instances < 1:
        faults.append("it has no instance")
    if not (math.isfinite(scenario.kv_bytes_per_token) and scenario.kv_bytes_per_token > 0):
        faults.append("its KV bytes per token are not a positive number")
    faults += [
        f"link `{link.link_id}` has no finite rate, or no instance"
        for link in scenario.links.values()
        if not math.isfinite(link.bytes_per_s) or link.instances_per_link < 1
    ]
    return faults


def _tier_faults(tier: TierSpec) -> Iterator[str]:
    """What a tier states that cannot be."""
    name = f"tier `{tier.tier_id}`"
    if tier.inclusion == "exclusive" and tier.write_moment != "on_evict":
        yield f"{name} is exclusive, so its write moment has to be `on_evict`"
    if tier.holds_hbm and tier.write_moment != "on_compute":
        yield f"{name} is written on evict, so HBM cannot hold blocks for it"
    if not 0.0 < tier.low_watermark <= tier.high_watermark <= 1.0:
        yield f"{name} needs watermarks with 0 < low <= high <= 1"
    if tier.admission_uses < 1 or tier.match_tokens < 0:
        yield f"{name} needs an admission of 1 use or more and a match unit of 0 tokens or more"
    shares = (tier.lookup_failure_share, tier.read_failure_share)
    if not all(0.0 <= share <= 1.0 for share in shares):
        yield f"{name} has a failure share outside 0..1"
    least_s = min(tier.lease_s, tier.read_delay_p99_s, tier.ttl_s or 0.0, tier.timeout_s or 0.0)
    if least_s < 0.0:
        yield f"{name} has a time below zero"
    if tier.lookup_p99_s is not None and tier.lookup_p99_s < tier.lookup_s:
        yield f"{name} has a lookup whose 99th percentile is below `lookup_s`"


def build_topology(
    scenario: Scenario,
    table: AtomTable,
    *,
    block_tokens: int,
    pad: Sequence[int] = (),
    first: int = 0,
) -> Topology:
    """Number the links and routes of `scenario`, and give each usable tier its empty caches.

    Tiers that hold no block, that sit behind a dead link, or that are never read are left out.
    `pad` (requests,): tokens that the last block of each request lacks. `first`: the row of the
    trace that is request 0.
    """
    wiring = _Wiring(scenario)
    usable = list(_usable(scenario, block_tokens))
    takes_evicted = [spec.write_moment == "on_evict" for spec, _ in usable]
    is_fine = [
        is_special(spec) or any(takes_evicted[index + 1 : index + 2])
        for index, (spec, _) in enumerate(usable)
    ]
    block_map = BlockMap(table, block_tokens=block_tokens, pad=pad) if any(is_fine) else None
    clock = Clock()
    tiers: list[Tier] = []
    count = scenario.instances
    for index, (spec, capacity) in enumerate(usable):
        plain: list[LruCache] = []
        fine: list[BlockCache] = []
        copies = 1 if spec.scope == "shared" else count
        if block_map is not None and is_fine[index]:
            fine = [BlockCache(spec, capacity, block_map, clock) for _ in range(copies)]
        else:
            plain = [LruCache(capacity, table.blocks) for _ in range(copies)]
        tiers.append(
            Tier(
                spec=spec,
                index=index,
                caches=(plain or fine) * (count // copies),
                reads=[wiring.reads(spec.read, instance) for instance in range(count)],
                writers=[Writer(wiring.legs(spec.write, one, "writes")) for one in range(count)],
                tails=draw_tails(
                    spec,
                    index,
                    seed=scenario.seed,
                    first=first,
                    requests=len(table.request_blocks),
                ),
                plain=plain * (count // copies),
                fine=fine * (count // copies),
                holds_hbm=spec.holds_hbm,
            )
        )
    return wiring.topology(tiers, clock, block_map)


def _usable(scenario: Scenario, block_tokens: int) -> Iterator[tuple[TierSpec, int]]:
    """The tiers that hold something and can be reached, with their blocks."""
    if not scenario.reuse or scenario.load_decision == "never":
        return
    for spec in scenario.tiers:
        token_bytes = spec.stored_bytes_per_token or scenario.kv_bytes_per_token
        capacity = blocks_of(spec.capacity_bytes, token_bytes * block_tokens)
        if capacity and is_usable(spec, scenario):
            yield spec, capacity
