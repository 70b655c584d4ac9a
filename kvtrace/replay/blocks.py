"""Blocks in caches: atoms, LRU tiers over atoms, and HBM that running requests pin and share.

An atom is a run of consecutive dense block ids that every request touches whole, so a cache holds a
prefix of each atom and one number per atom says how long it is. A request is looked up whole and
then touched tail to head; inside an atom the tail is therefore always the least recent, and an
eviction that trims the tail of the least recently touched atom is bit-equal to LRU over blocks.
The cost does not depend on the block size.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvtrace.replay.generated import GeneratedRuns
from kvtrace.schema.arrays import IntArray, RequestTrace

Victim = tuple[int, int, int]
"""(atom, blocks that stay, blocks that were there): an eviction, tail first."""


@dataclass(frozen=True, slots=True)
class AtomTable:
    """The atoms of a trace and which requests touch them; flat arrays, for the hot loop."""

    offset: array[int]
    """(requests + 1,) atoms of request i are atoms[offset[i] : offset[i + 1]], head first. Where
    generated blocks are kept there are as many entries more: request i + requests then stands for
    what request i generates."""
    atoms: array[int]
    blocks: array[int]
    """(distinct atoms,) blocks of each atom."""
    request_blocks: array[int]
    """(requests,) blocks of each request, a partial last block included."""

    def generates(self, request: int) -> bool:
        """Whether blocks of its output have ids."""
        made = len(self.request_blocks) + request
        return made + 1 < len(self.offset) and self.offset[made] < self.offset[made + 1]


@dataclass(frozen=True, slots=True)
class AtomHistory:
    """The atoms of requests that came before the replayed ones; arrays, for `warmup`."""

    offset: IntArray
    """(requests + 1,)"""
    atoms: IntArray
    weight: IntArray
    """(distinct atoms,) blocks of each atom."""


def counts_of(column: IntArray) -> array[int]:
    """The column for the hot loop, which reads single numbers."""
    return array("q", column.astype(np.int64, copy=False).tobytes())


def build_atoms(trace: RequestTrace, first: int = 0) -> AtomTable:
    """The atoms of the requests from `first` on; see `split_atoms`."""
    return split_atoms(trace, first)[1]


def split_atoms(
    trace: RequestTrace, first: int, generated: GeneratedRuns | None = None
) -> tuple[AtomHistory, AtomTable]:
    """Cut the runs of every request at all run boundaries of the trace: before `first`, and after.

    With `generated` the requests of the history touch what they generated, too.
    Formula: boundaries = {start, start + blocks of every run}; an atom spans two of them.
    """
    if generated is None:
        offset, atoms, edges = atom_arrays(trace)
        made_offset, made = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    else:
        ends = generated.start + generated.blocks
        is_any = generated.blocks > 0
        offset, atoms, edges = atom_arrays(trace, (generated.start[is_any], ends[is_any]))
        lo = np.searchsorted(edges, generated.start)
        counts = np.where(is_any, np.searchsorted(edges, ends) - lo, 0)
        made_offset, made = _spread(lo, counts)
    weight = np.diff(edges)
    cut = int(offset[first])
    kept, touched = offset[first:] - cut, atoms[cut:]
    if generated is not None:
        touched = np.concatenate((touched, made[made_offset[first] :]))
        kept = np.concatenate((kept, kept[-1] + made_offset[first + 1 :] - made_offset[first]))
    table = AtomTable(
        offset=counts_of(kept),
        atoms=counts_of(touched),
        blocks=counts_of(weight),
        request_blocks=counts_of(trace.blocks_per_request()[first:]),
    )
    history = AtomHistory(offset[: first + 1], atoms[:cut], weight)
    if generated is not None and first:
        history = _with_generated(history, made_offset[: first + 1], made)
    return history, table


def _with_generated(history: AtomHistory, offset: IntArray, made: IntArray) -> AtomHistory:
    """Every request of the history with what it generated behind its prompt."""
    size = np.diff(history.offset) + np.diff(offset)
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(size)))
    atoms = np.zeros(int(total[-1]), dtype=np.int64)
    for source, start, behind in (
        (history.atoms, history.offset, np.zeros(len(size), dtype=np.int64)),
        (made[: offset[-1]], offset, np.diff(history.offset)),
    ):
        count = np.diff(start)
        within = np.arange(int(start[-1]), dtype=np.int64) - np.repeat(start[:-1], count)
        atoms[np.repeat(total[:-1] + behind, count) + within] = source
    return AtomHistory(total, atoms, history.weight)


def _spread(first: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """(offsets, first .. first + counts of every row, one after the other)."""
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    within = np.arange(int(total[-1]), dtype=np.int64) - np.repeat(total[:-1], counts)
    return total, np.repeat(first, counts) + within


def atom_arrays(
    trace: RequestTrace, cuts: tuple[IntArray, ...] = ()
) -> tuple[IntArray, IntArray, IntArray]:
    """(offset, atoms, edges): atoms per request; first block id of each atom, and the end.

    `cuts`: further ids where an atom has to begin.
    """
    start = trace.run_start.astype(np.int64)
    end = start + trace.run_blocks.astype(np.int64)
    edges = np.unique(np.concatenate((start, end, *cuts)))
    first = np.searchsorted(edges, start)
    total, atoms = _spread(first, np.searchsorted(edges, end) - first)
    return total[trace.run_offset.astype(np.int64)], atoms, edges


class LruCache:
    """An LRU cache of whole blocks, stored as a prefix length per atom, least recent atom first."""

    __slots__ = ("_weight", "capacity", "evicted", "stored", "used", "victims")

    def __init__(self, capacity_blocks: int, atom_blocks: Sequence[int]) -> None:
        self.capacity = capacity_blocks
        self.stored: OrderedDict[int, int] = OrderedDict()
        self.used = 0
        self.evicted = 0
        self.victims: list[Victim] | None = None
        """Where evicted blocks are noted, if anywhere."""
        self._weight = atom_blocks

    def restore(self, content: Sequence[tuple[int, int]]) -> None:
        """Hold exactly these (atom, blocks), least recent first, in an empty cache."""
        self.stored.update(content)
        self.used = sum(self.stored.values())

    def extend(self, atoms: Sequence[int], at: int, depth: int, end: int) -> tuple[int, int, int]:
        """Continue a leading run that stands `depth` blocks into `atoms[at]`.

        Returns the new (at, depth) and the blocks gained.
        """
        return extend_run(self.stored, self._weight, atoms, at, depth, end)

    def touch(self, atoms: Sequence[int], lo: int, end: int) -> None:
        """Insert or renew `atoms[lo:end]` whole, tail to head, then evict what is too much."""
        stored = self.stored
        weight = self._weight
        used = self.used
        take = stored.pop
        for index in range(end - 1, lo - 1, -1):
            atom = atoms[index]
            blocks = weight[atom]
            used += blocks - take(atom, 0)
            stored[atom] = blocks
        self.used = used
        if used > self.capacity:
            self._evict(used - self.capacity)

    def renew(self, atoms: Sequence[int], lo: int, end: int) -> None:
        """Make what is stored of `atoms[lo:end]` most recent, tail to head; insert nothing."""
        stored = self.stored
        for index in range(end - 1, lo - 1, -1):
            atom = atoms[index]
            if atom in stored:
                stored.move_to_end(atom)

    def missing(self, atoms: Sequence[int], lo: int, end: int) -> tuple[int, bool]:
        """(blocks of `atoms[lo:end]` not stored, whether the last block is one of them)."""
        stored = self.stored
        weight = self._weight
        blocks = 0
        lacks_last = False
        for index in range(lo, end):
            atom = atoms[index]
            lack = weight[atom] - stored.get(atom, 0)
            blocks += lack
            lacks_last = lack > 0
        return blocks, lacks_last

    def _evict(self, blocks: int) -> None:
        self.evicted += blocks
        self.used -= blocks
        stored = self.stored
        while blocks > 0:
            atom, held = stored.popitem(last=False)
            if held > blocks:
                stored[atom] = held - blocks
                stored.move_to_end(atom, last=False)
            if self.victims is not None:
                self.victims.append((atom, max(0, held - blocks), held))
            blocks -= held


class HbmCache:
    """HBM of one instance for KV: cached blocks, and room that running requests hold.

    Blocks of running requests are pinned (not evictable) from admission to completion; an atom is
    pinned whole. When its last holder ends, an atom becomes the most recent one, tail first, as in
    vLLM's free queue. Room for KV that is not in the cache yet is reserved in tokens.
    """

    __slots__ = (
        "_pins",
        "_unpinned",
        "_weight",
        "block_tokens",
        "capacity_tokens",
        "evicted",
        "pinned",
        "reserved",
        "stored",
        "used",
        "victims",
        "writes",
    )

    def __init__(self, capacity_tokens: int, block_tokens: int, atom_blocks: Sequence[int]) -> None:
        self.capacity_tokens = capacity_tokens
        self.block_tokens = block_tokens
        self.stored: dict[int, int] = {}
        self.used = 0
        """Blocks stored."""
        self.pinned = 0
        """Blocks of pinned atoms."""
        self.reserved = 0
        """Tokens reserved by requests and not in the cache."""
        self.evicted = 0
        self.victims: list[Victim] | None = None
        """Where evicted blocks are noted, if anywhere."""
        self.writes = 0
        """Prompts that are held until they are written to a tier."""
        self._pins: dict[int, int] = {}
        self._unpinned: OrderedDict[int, None] = OrderedDict()
        self._weight = atom_blocks

    def restore(self, content: Sequence[tuple[int, int]]) -> None:
        """Hold exactly these (atom, blocks), least recent first, in an empty cache."""
        self.stored.update(content)
        self.used = sum(self.stored.values())
        self._unpinned.update(dict.fromkeys(self.stored))

    def extend(self, atoms: Sequence[int], at: int, depth: int, end: int) -> tuple[int, int, int]:
        """Continue a leading run; see `LruCache.extend`."""
        return extend_run(self.stored, self._weight, atoms, at, depth, end)

    def fits(self, tokens: int, atoms: Sequence[int], lo: int, end: int) -> bool:
        """Whether `tokens` find room beside all pinned blocks once `atoms[lo:end]` are pinned."""
        taken = self.pinned
        free = self.capacity_tokens - self.reserved - tokens
        if free >= self.used * self.block_tokens:
            return True
        pins = self._pins
        stored = self.stored
        for index in range(lo, end):
            atom = atoms[index]
            if atom not in pins:
                taken += stored[atom]
        return taken * self.block_tokens <= free

    def pin(self, atoms: Sequence[int], lo: int, end: int) -> None:
        """Hold the stored `atoms[lo:end]` for one more request."""
        pins = self._pins
        for index in range(lo, end):
            atom = atoms[index]
            holders = pins.get(atom, 0)
            pins[atom] = holders + 1
            if not holders:
                self.pinned += self.stored[atom]
                del self._unpinned[atom]

    def reserve(self, tokens: int) -> None:
        """Take room for `tokens`, evicting the least recent blocks that nobody holds."""
        self.reserved += tokens
        self.shrink()

    def fill(self, atoms: Sequence[int], lo: int, held: int, end: int, depth: int = 0) -> None:
        """Store `atoms[lo:end]` whole, and `depth` blocks of `atoms[end]`; hold those from `held`.

        Atoms before `held` are already held by the request. The caller has given back the room that
        it had reserved for them.
        """
        weight = self._weight
        stored = self.stored
        pins = self._pins
        for index in range(lo, end + 1 if depth else end):
            atom = atoms[index]
            have = stored.get(atom, 0)
            want = weight[atom] if index < end else depth
            grown = want - have if want > have else 0
            holders = pins.get(atom, 0)
            if not holders:
                self.pinned += have
                self._unpinned.pop(atom, None)
            if index >= held:
                pins[atom] = holders + 1
            if grown:
                stored[atom] = want
                self.used += grown
                self.pinned += grown

    def let_go(self, atoms: Sequence[int], lo: int, end: int, tokens: int) -> None:
        """One request ends: give back `tokens` and its hold on `atoms[lo:end]`, tail first."""
        self.reserved -= tokens
        pins = self._pins
        for index in range(end - 1, lo - 1, -1):
            atom = atoms[index]
            holders = pins[atom] - 1
            if holders:
                pins[atom] = holders
            else:
                del pins[atom]
                self._unpinned[atom] = None
                self.pinned -= self.stored[atom]
        self.shrink()

    def shrink(self) -> None:
        """Evict unpinned blocks, least recent atom's tail first, until all fits (if it can)."""
        size = self.block_tokens
        over = self.used * size + self.reserved - self.capacity_tokens
        if over <= 0 or not self._unpinned:
            return
        want = -(-over // size)
        stored = self.stored
        unpinned = self._unpinned
        while want > 0 and unpinned:
            atom = next(iter(unpinned))
            held = gone = stored[atom]
            if gone > want:
                gone = want
                stored[atom] -= gone
            else:
                del stored[atom], unpinned[atom]
            if self.victims is not None:
                self.victims.append((atom, held - gone, held))
            want -= gone
            self.used -= gone
            self.evicted += gone


def extend_run(
    stored: dict[int, int],
    weight: Sequence[int],
    atoms: Sequence[int],
    at: int,
    depth: int,
    end: int,
) -> tuple[int, int, int]:
    """(at, depth, blocks gained) of a leading run continued through what `stored` holds."""
    gained = -depth
    while at < end:
        atom = atoms[at]
        have = stored.get(atom, 0)
        if have < weight[atom]:
            if have > depth:
                return at, have, gained + have
            return at, depth, gained + depth
        gained += have
        at += 1
        depth = 0
    return at, 0, gained
