"""A scenario made ready to run: links with numbers, routes of every stage, one cache per tier."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kvtrace.errors import ModelError
from kvtrace.replay.blocks import LruCache
from kvtrace.replay.scenario import Scenario, StageSpec, TierSpec

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
    is_busy: bool = False


@dataclass(slots=True)
class Tier:
    """A tier that can be used: its caches and legs by instance."""

    spec: TierSpec
    index: int
    caches: list[LruCache]
    """(instances,) the same object everywhere when the tier is shared."""
    reads: list[tuple[Leg, ...]]
    writers: list[Writer]


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything about a scenario that does not change while it runs."""

    tiers: tuple[Tier, ...]
    link_ids: tuple[str, ...]
    """(links,) the kind of each physical link."""
    bytes_per_s: tuple[float, ...]
    routes: tuple[tuple[int, ...], ...]


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


class _Wiring:
    """Numbers links and routes as the stages ask for them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._links: dict[tuple[str, int], int] = {}
        self._routes: dict[tuple[int, ...], int] = {}

    def legs(self, stages: Sequence[StageSpec], instance: int) -> tuple[Leg, ...]:
        """The legs of `stages` for one instance."""
        return tuple(
            Leg(stage.kind, stage.latency_s, self._route(stage, instance)) for stage in stages
        )

    def _route(self, stage: StageSpec, instance: int) -> int:
        links = tuple(sorted({self._link(link_id, instance) for link_id in stage.link_ids}))
        return self._routes.setdefault(links, len(self._routes)) if links else NO_ROUTE

    def _link(self, link_id: str, instance: int) -> int:
        spec = self._scenario.links[link_id]
        place = -1 if spec.scope == "shared" else instance // spec.instances_per_link
        return self._links.setdefault((link_id, place), len(self._links))

    def topology(self, tiers: Sequence[Tier]) -> Topology:
        """What was asked for, as flat tuples."""
        ids = tuple(link_id for link_id, _ in self._links)
        rates = tuple(self._scenario.links[link_id].bytes_per_s for link_id in ids)
        return Topology(tuple(tiers), ids, rates, tuple(self._routes))


def check_scenario(scenario: Scenario) -> None:
    """Refuse a scenario that cannot be replayed.

    Raises:
        ModelError: no instance, an unknown link, or a number that is no quantity.
    """
    faults = [
        f"tier `{tier.tier_id}` crosses the unknown link `{link_id}`"
        for tier in scenario.tiers
        for stage in (*tier.read, *tier.write)
        for link_id in stage.link_ids
        if link_id not in scenario.links
    ]
    if scenario.instances < 1:
        faults.append("it has no instance")
    if not (math.isfinite(scenario.kv_bytes_per_token) and scenario.kv_bytes_per_token > 0):
        faults.append("its KV bytes per token are not a positive number")
    faults += [
        f"link `{link.link_id}` has no finite rate, or no instance"
        for link in scenario.links.values()
        if not math.isfinite(link.bytes_per_s) or link.instances_per_link < 1
    ]
    if faults:
        raise ModelError(
            "KVT-R001",
            f"scenario `{scenario.option_id}` cannot be replayed: {faults[0]}",
            cause="\n".join(faults[1:]) or None,
        )


def build_topology(
    scenario: Scenario, *, atom_blocks: Sequence[int], block_tokens: int
) -> Topology:
    """Number the links and routes of `scenario`, and give each usable tier its empty caches.

    Tiers that hold no block, that sit behind a dead link, or that are never read are left out.
    """
    wiring = _Wiring(scenario)
    tiers: list[Tier] = []
    count = scenario.instances
    for spec in scenario.tiers if scenario.reuse and scenario.load_decision != "never" else ():
        token_bytes = spec.stored_bytes_per_token or scenario.kv_bytes_per_token
        capacity = blocks_of(spec.capacity_bytes, token_bytes * block_tokens)
        if not capacity or not is_usable(spec, scenario):
            continue
        if spec.scope == "shared":
            caches = [LruCache(capacity, atom_blocks)] * count
        else:
            caches = [LruCache(capacity, atom_blocks) for _ in range(count)]
        reads = [wiring.legs(spec.read, instance) for instance in range(count)]
        writers = [Writer(wiring.legs(spec.write, instance)) for instance in range(count)]
        tiers.append(Tier(spec, len(tiers), caches, reads, writers))
    return wiring.topology(tiers)
