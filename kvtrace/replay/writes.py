"""Writes to tiers whose caches work block by block: prompts when computed, and what is evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kvtrace.replay.blockmap import BlockMap, whole_blocks
from kvtrace.replay.blocks import Victim
from kvtrace.replay.state import Requests
from kvtrace.replay.topology import Leg, Tier, Topology

Send = Callable[[int, list[tuple[Leg, float]], Callable[[float], None], float], None]
"""Writes over the legs, (leg, bytes) each, for a request (-1: none); calls at the end; now."""


OnWritten = Callable[[int, Tier, int, float], None]
"""(request, tier, instance, time): its prompt is in the tier, or will not be."""


class FineWrites:
    """Keeps the writers of these tiers busy, and hands down what they evict."""

    __slots__ = ("_clock", "_kv_bytes", "_map", "_on_written", "_requests", "_send")

    def __init__(
        self,
        topology: Topology,
        block_map: BlockMap,
        requests: Requests,
        send: Send,
        *,
        kv_bytes_per_token: float,
        on_written: OnWritten,
    ) -> None:
        self._clock = topology.clock
        self._map = block_map
        self._requests = requests
        self._send = send
        self._kv_bytes = kv_bytes_per_token
        self._on_written = on_written

    def publish(self, request: int, tier: Tier, instance: int, now: float) -> None:
        """The prompt is computed, and in HBM."""
        self._clock.now = now
        if not self.note(request, tier, instance):
            return
        writer = tier.writers[instance]
        writer.waiting.append(request)
        if not writer.is_busy:
            self._next(tier, instance, now)

    def note(self, request: int, tier: Tier, instance: int) -> bool:
        """Count that the request asked for its blocks; whether it is to be written now."""
        cache = tier.fine[instance]
        blocks = self._map.of_request(request)
        cache.note(blocks)
        if tier.spec.inclusion == "exclusive":
            cache.drop(blocks)
        return tier.spec.write_moment == "on_compute"

    def storable(self, request: int, tier: Tier) -> list[int]:
        """The blocks of a request that the tier takes: whole match units, where it has such."""
        blocks = self._map.of_request(request)
        unit = tier.spec.match_tokens
        requests = self._requests
        if unit and request < requests.count:
            del blocks[whole_blocks(requests.prompt[request], unit, requests.block_tokens) :]
        return blocks

    def evict_from_hbm(
        self, tier: Tier, instance: int, victims: Iterable[Victim], now: float
    ) -> None:
        """HBM of the instance has evicted blocks that are the tier's now."""
        self._clock.now = now
        self.demote(tier, instance, self.blocks_of(victims), now)

    def blocks_of(self, victims: Iterable[Victim]) -> list[int]:
        """Single blocks in order of eviction."""
        blocks: list[int] = []
        for atom, kept, held in victims:
            blocks.extend(reversed(self._map.part(atom, kept, held)))
        return blocks

    def demote(self, tier: Tier, instance: int, blocks: Iterable[int], now: float) -> None:
        """Write blocks to the tier; what is evicted while a write runs goes with the next one."""
        writer = tier.writers[instance]
        writer.demoted += blocks
        if not writer.is_busy:
            self._next(tier, instance, now)

    def _next(self, tier: Tier, instance: int, now: float) -> None:
        writer = tier.writers[instance]
        cache = tier.fine[instance]
        writer.is_busy = False
        while not writer.is_busy:
            request = -1
            if writer.waiting:
                request = writer.waiting.popleft()
                blocks = self.storable(request, tier)
            elif writer.demoted:
                blocks = writer.demoted[::-1]
                writer.demoted.clear()
            else:
                return
            lacking = cache.lacking(blocks)
            if lacking and writer.legs:
                writer.is_busy = True
                size = self._map.tokens(lacking) * self._kv_bytes
                legs = [(leg, size) for leg in writer.legs]
                end = partial(self._end, tier, instance, request, blocks)
                self._send(request, legs, end, now)
            else:
                self._store(tier, instance, request, blocks, now)

    def _end(self, tier: Tier, instance: int, request: int, blocks: list[int], now: float) -> None:
        self._clock.now = now
        self._store(tier, instance, request, blocks, now)
        self._next(tier, instance, now)

    def _store(
        self, tier: Tier, instance: int, request: int, blocks: list[int], now: float
    ) -> None:
        """The blocks (most recent first) are in the tier; what they push out goes down."""
        if request >= 0:
            self._on_written(request, tier, instance, now)
        victims = evicted_by(tier, instance, blocks)
        if victims and tier.below is not None:
            self.demote(tier.below, instance, victims, now)


def evicted_by(tier: Tier, instance: int, blocks: list[int]) -> list[int]:
    """Store blocks (most recent first): what that evicts, in order of eviction.

    Blocks that were themselves evicted above and find no room are evicted after all others.
    """
    cache = tier.fine[instance]
    left_out = cache.store(blocks)
    victims = cache.victims[:]
    cache.victims.clear()
    if tier.spec.write_moment == "on_evict":
        victims += reversed(left_out)
    return victims


class IdealWrites:
    """The same without time: what is written is there at once."""

    __slots__ = ("_topology", "_writes")

    def __init__(self, topology: Topology, writes: FineWrites) -> None:
        self._topology = topology
        self._writes = writes

    def hold(self, request: int, instance: int, hbm_victims: list[Victim] | None) -> None:
        """The request is in HBM; put it into the tiers that take it, and what is evicted below."""
        below = self._topology.below_hbm
        evicted: dict[int, list[int]] = {}
        for tier in self._topology.tiers:
            if tier.fine and self._writes.note(request, tier, instance):
                self._store(tier, instance, self._writes.storable(request, tier), evicted)
        if below is not None and hbm_victims:
            evicted[below.index] = self._writes.blocks_of(hbm_victims)
            hbm_victims.clear()
        for tier in self._topology.tiers:
            if evicted.get(tier.index):
                self._store(tier, instance, evicted[tier.index][::-1], evicted)

    def _store(
        self, tier: Tier, instance: int, blocks: list[int], evicted: dict[int, list[int]]
    ) -> None:
        victims = evicted_by(tier, instance, blocks)
        if tier.below is not None:
            evicted.setdefault(tier.below.index, []).extend(victims)
