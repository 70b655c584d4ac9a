"""A tier's cache block by block: any policy, admission, match unit, watermarks, leases, lifetimes.

`LruCache` is the fast case (whole atoms, LRU, nothing else); this one can do the rest, and costs
time per block.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from kvtrace.replay.blockmap import BlockMap
from kvtrace.replay.orders import FlatFifoOrder, LruOrder, Order, RankedOrder
from kvtrace.replay.scenario import EvictionPolicy, TierSpec
from kvtrace.replay.sieves import ArcOrder, S3FifoOrder


@dataclass(slots=True)
class Clock:
    """The time of the event that is being handled."""

    now: float = 0.0


def make_order(policy: EvictionPolicy, room: int, parent: Sequence[int]) -> Order:
    """An empty cache's order."""
    if policy == "lru":
        return LruOrder()
    if policy == "flat_fifo":
        return FlatFifoOrder()
    if policy == "arc":
        return ArcOrder(room, parent)
    if policy == "s3_fifo":
        return S3FifoOrder(room, parent)
    return RankedOrder(policy, parent)


class BlockCache:
    """Blocks that are there, in the order of a policy. What it evicts is added to `victims`."""

    __slots__ = (
        "_clock",
        "_high",
        "_lease_until",
        "_low",
        "_map",
        "_order",
        "_request",
        "_spec",
        "_stamp",
        "_ttl_s",
        "_used_at",
        "_uses",
        "capacity",
        "evicted",
        "stored",
        "victims",
    )

    def __init__(
        self, spec: TierSpec, capacity_blocks: int, blocks: BlockMap, clock: Clock
    ) -> None:
        self.capacity = capacity_blocks
        self.evicted = 0
        self.victims: list[int] = []
        """Blocks evicted since somebody emptied it, in order of eviction."""
        self.stored: OrderedDict[int, int] = OrderedDict()
        """Leading blocks of each atom that are there."""
        self._spec = spec
        self._map = blocks
        self._clock = clock
        self._high = math.floor(capacity_blocks * spec.high_watermark + 1e-9)
        self._low = math.floor(capacity_blocks * spec.low_watermark + 1e-9)
        self._ttl_s = inf if spec.ttl_s is None else spec.ttl_s
        self._order = make_order(spec.policy, self._high, blocks.parent)
        self._used_at: dict[int, float] = {}
        """When each block that is there was last used."""
        self._lease_until: dict[int, float] = {}
        self._uses: defaultdict[int, int] = defaultdict(int)
        """Requests that asked for a block, where the admission counts them."""
        self._request = 0
        self._stamp = 0

    @property
    def used(self) -> int:
        """Blocks that are there."""
        return len(self._used_at)

    def __contains__(self, block: int) -> bool:
        """Whether it is there and its lifetime is not over."""
        used_at = self._used_at.get(block)
        return used_at is not None and self._clock.now - used_at <= self._ttl_s

    def extend(self, atoms: Sequence[int], at: int, depth: int, end: int) -> tuple[int, int, int]:
        """Continue a leading run; what is found is leased."""
        found: list[int] = []
        while at < end:
            blocks = self._map.atom(atoms[at])
            for block in blocks[depth:]:
                if block not in self:
                    return self._found(found, at, depth)
                found.append(block)
                depth += 1
            at, depth = at + 1, 0
        return self._found(found, at, depth)

    def _found(self, found: list[int], at: int, depth: int) -> tuple[int, int, int]:
        if self._spec.lease_s > 0.0:
            until = self._clock.now + self._spec.lease_s
            self._lease_until.update(dict.fromkeys(found, until))
        return at, depth, len(found)

    def renew(self, atoms: Sequence[int], lo: int, end: int) -> None:
        """What is there of `atoms[lo:end]` was used.

        Where a policy counts uses and the request will be stored here, that is its one use.
        """
        if self._spec.policy in ("lru", "leaf_lru") or self._spec.write_moment == "on_evict":
            blocks = self._map.of_atoms(atoms, lo, end)
            self._touch(blocks)
            self._order.offer([block for block in blocks if block in self._used_at])

    def note(self, blocks: Iterable[int]) -> None:
        """A request asks for the blocks; to be called once for each request."""
        if self._spec.admission_uses > 1:
            for block in blocks:
                self._uses[block] += 1

    def lacking(self, blocks: Sequence[int]) -> list[int]:
        """Those of a request's blocks that storing it would have to write."""
        lacking: list[int] = []
        for block in blocks:
            if block not in self:
                if self._is_admitted(block):
                    lacking.append(block)
                elif self._order.holds_prefixes:
                    break
        return lacking

    def store(self, blocks: Sequence[int]) -> Sequence[int]:
        """Use what is there of a request's blocks (head first), and put in the rest.

        Returns those for which there was no room.
        """
        lead = self._touch(blocks)
        if lead:
            self._order.found(blocks[lead - 1])
        last = self._stamp - 1
        order = self._order
        left_out: list[int] = []
        for place, block in enumerate(blocks):
            if block in self._used_at:
                continue
            if not self._is_admitted(block):
                if order.holds_prefixes:
                    break
                continue
            order.meet(block)
            if self._make_room(self._request):
                order.enter(block, last - place, self._request, place)
                self._used_at[block] = self._clock.now
                self._grow(block)
            else:
                left_out.append(block)
                if order.holds_prefixes:
                    left_out += [one for one in blocks[place + 1 :] if one not in self._used_at]
                    break
        order.offer([block for block in blocks if block in self._used_at])
        return left_out

    def drop(self, blocks: Iterable[int]) -> None:
        """The blocks have gone up the chain."""
        for block in blocks:
            if block in self._used_at:
                self._forget(block)
                self._order.leave(block)

    def restore(self, content: Sequence[tuple[int, int]]) -> None:
        """Hold these (atom, blocks), least recent first, in an empty cache."""
        blocks: list[int] = []
        for atom, held in reversed(content):
            blocks.extend(self._map.part(atom, 0, held))
        self.note(block for block in blocks for _ in range(self._spec.admission_uses))
        self.store(blocks)

    def _is_admitted(self, block: int) -> bool:
        wanted = self._spec.admission_uses
        return wanted <= 1 or self._uses[block] >= wanted

    def _touch(self, blocks: Sequence[int]) -> int:
        """A new request uses what is there, tail before head; blocks of its leading run."""
        self._request += 1
        count = len(blocks)
        base = self._stamp
        self._stamp += count
        used_at, now = self._used_at, self._clock.now
        lead = 0
        for place in range(count - 1, -1, -1):
            block = blocks[place]
            if block in used_at:
                self._order.touch(block, base + count - 1 - place, self._request)
                used_at[block] = now
                lead += 1
            else:
                lead = 0
        return lead

    def _make_room(self, request: int) -> bool:
        """Room for one block more; below the high watermark nothing goes."""
        used_at = self._used_at
        if len(used_at) < self._high:
            return True
        is_kept = self._is_leased if self._lease_until else None
        while len(used_at) >= max(1, self._low):
            gone = self._order.victims(request, is_kept)
            if not gone:
                break
            self.evicted += len(gone)
            self.victims += gone
            for block in gone:
                self._forget(block)
        return len(used_at) < self._high

    def _is_leased(self, block: int) -> bool:
        return self._lease_until.get(block, -inf) > self._clock.now

    def _forget(self, block: int) -> None:
        del self._used_at[block]
        self._lease_until.pop(block, None)
        atom, place = self._map.place(block)
        if place < self.stored.get(atom, 0):
            if place:
                self.stored[atom] = place
            else:
                del self.stored[atom]

    def _grow(self, block: int) -> None:
        """A block is there now: the leading run of its atom may be longer."""
        atom, place = self._map.place(block)
        if place == self.stored.get(atom, 0):
            following = self._map.atom(atom)[place:]
            lead = next((i for i, b in enumerate(following) if b not in self._used_at), None)
            self.stored[atom] = place + (len(following) if lead is None else lead)
