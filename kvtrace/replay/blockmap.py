"""Single blocks behind atoms, for the caches that need them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kvtrace.replay.blocks import AtomTable


class BlockMap:
    """Block ids of atoms (local to the trace), what stands before each, and its tokens."""

    __slots__ = ("_atoms", "_first", "_lack", "_offset", "_weight", "block_tokens", "parent")

    def __init__(self, table: AtomTable, *, block_tokens: int, pad: Sequence[int]) -> None:
        """`pad` (requests,): tokens that the last block of each request lacks."""
        self._atoms = table.atoms
        self._offset = table.offset
        self._weight = table.blocks
        self.block_tokens = block_tokens
        self._first: list[int] = []
        total = 0
        for weight in table.blocks:
            self._first.append(total)
            total += weight
        self.parent = self._parents(total)
        """(blocks,) the block before each in a request; -1: none."""
        self._lack: dict[int, int] = {}
        """Tokens that a block lacks, where it is full in no request."""
        self._find_partial(pad)

    def _parents(self, blocks: int) -> list[int]:
        parent = [-1] * blocks
        first, weight = self._first, self._weight
        for start, size in zip(first, weight, strict=True):
            parent[start + 1 : start + size] = range(start, start + size - 1)
        for lo, end in zip(self._offset, self._offset[1:], strict=False):
            for index in range(lo + 1, end):
                above = self._atoms[index - 1]
                parent[first[self._atoms[index]]] = first[above] + weight[above] - 1
        return parent

    def _find_partial(self, pad: Sequence[int]) -> None:
        for request, lacking in enumerate(pad):
            end = self._offset[request + 1]
            if lacking and end > self._offset[request]:
                atom = self._atoms[end - 1]
                last = self._first[atom] + self._weight[atom] - 1
                self._lack[last] = min(lacking, self._lack.get(last, lacking))
        for request, lacking in enumerate(pad):
            end = self._offset[request + 1]
            if not lacking and end > self._offset[request]:
                atom = self._atoms[end - 1]
                self._lack.pop(self._first[atom] + self._weight[atom] - 1, None)

    def of_request(self, request: int) -> list[int]:
        """Its blocks, head first."""
        return self.of_atoms(self._atoms, self._offset[request], self._offset[request + 1])

    def of_atoms(self, atoms: Sequence[int], lo: int, end: int) -> list[int]:
        """The blocks of `atoms[lo:end]`, head first."""
        blocks: list[int] = []
        for index in range(lo, end):
            blocks.extend(self.atom(atoms[index]))
        return blocks

    def of_run(self, request: int, start: tuple[int, int], end: tuple[int, int]) -> list[int]:
        """The blocks of a request between two ends of runs, each (at, depth)."""
        atoms = self._atoms
        blocks: list[int] = []
        at, depth = start
        while at < end[0]:
            blocks.extend(self.part(atoms[at], depth, self._weight[atoms[at]]))
            at, depth = at + 1, 0
        if end[1] > depth:
            blocks.extend(self.part(atoms[at], depth, end[1]))
        return blocks

    def atom(self, atom: int) -> range:
        """All blocks of an atom."""
        return self.part(atom, 0, self._weight[atom])

    def place(self, block: int) -> tuple[int, int]:
        """(its atom, its place in it)."""
        atom = bisect_right(self._first, block) - 1
        return atom, block - self._first[atom]

    def part(self, atom: int, lo: int, end: int) -> range:
        """Blocks `lo` to `end` of an atom."""
        first = self._first[atom]
        return range(first + lo, first + end)

    def tokens(self, blocks: Iterable[int]) -> int:
        """Tokens that the blocks hold."""
        lack, size = self._lack, self.block_tokens
        return sum(size - lack.get(block, 0) for block in blocks)


def whole_blocks(tokens: int, unit: int, block_tokens: int) -> int:
    """Blocks of the trace in the whole units of so many leading tokens.

    A unit that is smaller than a block may end inside one, which then counts.
    """
    whole = tokens // unit * unit
    return -(-whole // block_tokens) if unit <= block_tokens else whole // block_tokens
