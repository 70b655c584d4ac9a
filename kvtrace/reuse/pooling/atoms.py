"""The atoms of a trace as plain lists: what a router walks request by request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from kvtrace.reuse.runs import Runs, cut_runs
from kvtrace.schema.arrays import RequestTrace


@dataclass(frozen=True, slots=True)
class AtomLists:
    """The atoms of each request, head first."""

    of_request: list[list[int]]
    """(requests,) atoms of each request."""
    blocks: list[int]
    """(atoms,) blocks of each atom."""
    request_blocks: list[int]
    """(requests,) blocks of each request."""


def list_atoms(trace: RequestTrace) -> AtomLists:
    """The trace cut at every start and end of a run."""
    atoms = cut_runs(Runs(trace.run_offset, trace.run_start, trace.run_blocks))
    offset, ref = atoms.offset.tolist(), atoms.ref.tolist()
    return AtomLists(
        of_request=[ref[offset[i] : offset[i + 1]] for i in range(trace.requests)],
        blocks=atoms.blocks.tolist(),
        request_blocks=trace.blocks_per_request().tolist(),
    )


class LruOfAtoms:
    """One LRU cache of blocks, held as the blocks of each atom that are left, least recent first.

    Blocks of an atom are touched together, the tail first, so that the tail goes first too and what
    is left is a prefix of the atom.
    """

    def __init__(self, capacity_blocks: int, atom_blocks: Sequence[int]) -> None:
        self._free = capacity_blocks
        self._atom_blocks = atom_blocks
        self._left: OrderedDict[int, int] = OrderedDict()

    def leading_blocks(self, atoms: Sequence[int]) -> int:
        """Blocks of the longest prefix of these atoms that is cached."""
        found = 0
        for atom in atoms:
            left = self._left.get(atom, 0)
            found += left
            if left < self._atom_blocks[atom]:
                break
        return found

    def touch(self, atoms: Sequence[int]) -> None:
        """Insert or renew these atoms, tail to head, and evict the least recent blocks."""
        for atom in reversed(atoms):
            self._free += self._left.pop(atom, 0) - self._atom_blocks[atom]
            self._left[atom] = self._atom_blocks[atom]
        while self._free < 0:
            oldest, left = next(iter(self._left.items()))
            if left <= -self._free:
                del self._left[oldest]
                self._free += left
            else:
                self._left[oldest] = left + self._free
                self._free = 0
