"""Routing by the longest cached prefix and the work that each instance has been given.

A request goes to the instance where the blocks computed so far less `match_weight` times the
matched blocks are least; of equals to the one that computed less, then to the lowest number. With
a weight of 1 that is the instance whose work after it would be least, so that a match yields as
soon as the instance is ahead by as much; a larger weight lets an instance be ahead for longer,
which evens out over the trace. What the match is looked up in:

- an index that never sees an eviction: what an approximate prefix tree in the router knows, fed by
  the router's own decisions. Routing then does not depend on the capacity of the caches, and one
  pass gives the hits at every capacity.
- the caches themselves: what a router knows that engines tell of every stored and removed block.
  Routing then depends on the capacity, and each capacity is a run of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from kvtrace.reuse.pooling.atoms import AtomLists, LruOfAtoms, list_atoms
from kvtrace.schema.arrays import IntArray, RequestTrace

MATCH_WEIGHT: Final = 16
"""Work of one matched block against one block computed so far.

On the Mooncake conversation trace 1 gives away a sixth of the hits that routing can have, and from
16 on little is left to gain, while the mean minute is more even than by turns (docs/pooling.md)."""


class PrefixIndex(Protocol):
    """What a router knows of the caches of its instances."""

    def matches(self, atoms: Sequence[int]) -> list[int]:
        """(instances,) blocks of the longest prefix that each instance holds."""

    def add(self, instance: int, atoms: Sequence[int]) -> None:
        """The instance was given a request of these atoms."""


def route_kv_centric(
    trace: RequestTrace,
    instances: int,
    *,
    capacity_blocks: int | None = None,
    match_weight: int = MATCH_WEIGHT,
) -> IntArray:
    """(requests,) the instance of each request; a null capacity: an index without evictions."""
    atoms = list_atoms(trace)
    index: PrefixIndex
    if capacity_blocks is None:
        index = EndlessIndex(instances, atoms.blocks)
    else:
        index = CacheIndex(instances, capacity_blocks, atoms.blocks)
    return _assign(atoms, index, instances, match_weight)


def _assign(atoms: AtomLists, index: PrefixIndex, instances: int, match_weight: int) -> IntArray:
    """The rule, request by request."""
    chosen = np.zeros(len(atoms.of_request), dtype=np.int64)
    computed = [0] * instances
    for request, own in enumerate(atoms.of_request):
        matched = index.matches(own)
        _, _, best = min(
            (computed[i] - match_weight * matched[i], computed[i], i) for i in range(instances)
        )
        computed[best] += atoms.request_blocks[request] - matched[best]
        index.add(best, own)
        chosen[request] = best
    return chosen


class EndlessIndex:
    """Which instances were ever given an atom, as bits of one integer an atom."""

    def __init__(self, instances: int, atom_blocks: Sequence[int]) -> None:
        self._instances = instances
        self._atom_blocks = atom_blocks
        self._holders = [0] * len(atom_blocks)

    def matches(self, atoms: Sequence[int]) -> list[int]:
        """(instances,) blocks of the longest prefix that each instance was given."""
        found = [0] * self._instances
        holding, depth = (1 << self._instances) - 1, 0
        for atom in atoms:
            remaining = holding & self._holders[atom]
            _set_bits(found, holding & ~remaining, depth)
            holding = remaining
            if not holding:
                break
            depth += self._atom_blocks[atom]
        _set_bits(found, holding, depth)
        return found

    def add(self, instance: int, atoms: Sequence[int]) -> None:
        """The instance holds these atoms from now on."""
        bit = 1 << instance
        for atom in atoms:
            self._holders[atom] |= bit


def _set_bits(values: list[int], bits: int, value: int) -> None:
    """Set the entries whose bit is set."""
    while bits:
        lowest = bits & -bits
        values[lowest.bit_length() - 1] = value
        bits ^= lowest


class CacheIndex:
    """The LRU caches of the instances themselves."""

    def __init__(self, instances: int, capacity_blocks: int, atom_blocks: Sequence[int]) -> None:
        self._caches = [LruOfAtoms(capacity_blocks, atom_blocks) for _ in range(instances)]

    def matches(self, atoms: Sequence[int]) -> list[int]:
        """(instances,) blocks of the longest prefix that each cache holds."""
        return [cache.leading_blocks(atoms) for cache in self._caches]

    def add(self, instance: int, atoms: Sequence[int]) -> None:
        """The instance serves these atoms and keeps what its capacity allows."""
        self._caches[instance].touch(atoms)
