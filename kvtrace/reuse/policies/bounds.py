"""No policy can do better than these: the optimum of any cache of one size, from below and above.

A block that was used and will be used again is an interval between two requests; keeping it serves
one reference and takes room after every request in between. With blocks of one size, dropping the
interval that ends last whenever the room is exceeded keeps the most intervals (Belady's rule as
interval scheduling). docs/policies.md has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from kvtrace.reuse.policies.blocks import BlockTrace, Weight
from kvtrace.reuse.policies.kernels import Ints, Kernel, Mode, is_worth_compiling, run_kernel
from kvtrace.reuse.runs import Atoms, prefix_sums
from kvtrace.schema.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Intervals:
    """Every reference that an unlimited cache serves, as an interval from the use before it."""

    trace: BlockTrace
    atoms: Atoms
    opens: IntArray
    """(refs,) the next reference to the same atom by a later request, -1: none that counts."""
    is_head: BoolArray
    """(refs,) first reference to its atom in its request; repeats inside a request are not."""
    is_reusable: BoolArray
    """(refs,) an earlier request held it and all before it: what an unlimited cache serves."""
    tokens: IntArray
    """(refs,) counted tokens of the request in the atom."""
    full_blocks: IntArray
    """(refs,) blocks of the atom that are full in this request."""
    is_tree: bool
    """Every block always follows the same block, and no request names one twice."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A number of blocks and a number of tokens; each holds for itself."""

    blocks: int
    tokens: int


def find_intervals(trace: BlockTrace) -> Intervals:
    """The intervals of a trace; ids that are no tree are taken block by block."""
    is_tree = _is_tree(trace)
    atoms = trace.atoms(is_single=not is_tree)
    refs, request = len(atoms.ref), atoms.request
    order = np.argsort(atoms.ref, kind="stable")
    atom, owner = atoms.ref[order], request[order]
    same = np.zeros(refs, dtype=np.bool_)
    same[1:] = (atom[1:] == atom[:-1]) & (owner[1:] == owner[:-1])
    is_head = np.ones(refs, dtype=np.bool_)
    is_head[order[same]] = False
    heads = order[~same]
    is_seen, opens = np.zeros(refs, dtype=np.bool_), np.full(refs, -1, dtype=np.int64)
    again = np.flatnonzero(atoms.ref[heads[1:]] == atoms.ref[heads[:-1]])
    opens[heads[again]] = heads[again + 1]
    is_seen[heads[again + 1]] = True
    if not is_tree:
        is_seen |= _first_in_request(atoms, is_seen)
    unseen = prefix_sums((~is_seen).astype(np.int64))
    is_reusable = unseen[1:] == unseen[atoms.offset[:-1]][request]
    opens = np.where((opens >= 0) & is_reusable[opens], opens, -1)
    count = atoms.blocks[atoms.ref]
    before = prefix_sums(count)
    position = before[:-1] - before[atoms.offset[:-1]][request]
    size, most = trace.block_size_tokens, trace.counted_tokens[request]
    starts = np.minimum(position * size, most)
    tokens = np.minimum((position + count) * size, most) - starts
    return Intervals(
        trace, atoms, opens, is_head, np.asarray(is_reusable), tokens, tokens // size, is_tree
    )


def _first_in_request(atoms: Atoms, is_seen: BoolArray) -> BoolArray:
    """(refs,) what holds for the first reference to the same atom in the same request."""
    pair = atoms.request * max(1, len(atoms.start)) + atoms.ref
    _, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
    return np.asarray(is_seen[first[inverse]], dtype=np.bool_)


def _is_tree(trace: BlockTrace) -> bool:
    """Whether every block always follows the same block, so that a block implies its prefix."""
    if not len(trace.block):
        return True
    leads = trace.offset[:-1][np.diff(trace.offset) > 0]
    before = np.empty(len(trace.block), dtype=np.int64)
    before[1:] = trace.block[:-1]
    before[leads] = -1
    least = np.full(trace.distinct_blocks, np.iinfo(np.int64).max)
    most = np.full(trace.distinct_blocks, -2, dtype=np.int64)
    np.minimum.at(least, trace.block, before)
    np.maximum.at(most, trace.block, before)
    # In such a forest a request that named a block twice would have followed a circle.
    return bool((least == most).all())


def unlimited(found: Intervals) -> Bound:
    """What a cache without bound serves."""
    blocks = found.atoms.blocks[found.atoms.ref]
    return Bound(int(blocks[found.is_reusable].sum()), int(found.tokens[found.is_reusable].sum()))


@dataclass(frozen=True, slots=True)
class Optimum:
    """The optimum of one cache size, from below and from above."""

    low: IntArray
    """(requests,) leading blocks that a cache with the future at hand serves: a feasible way.

    It holds at most `capacity_blocks` blocks at a time, so it fits whichever way blocks weigh.
    Where ids are a tree it is prefix-closed by itself, and the optimum in blocks that weigh 1.
    """
    high: Bound
    """More than any cache of this size can serve, or as much, prefix-closed or not.

    Blocks that weigh 1: the most references (exact where no request names a block twice). Blocks
    that weigh their tokens: at most `capacity_blocks` full ones fit at a time, and partial ones are
    let in for nothing. Tokens: the most if a part of a block could be kept.
    """


def find_optimum(
    found: Intervals, capacity_blocks: int, weight: Weight, *, mode: Mode = "auto"
) -> Optimum:
    """The bounds of all caches of so many full blocks."""
    size, everything = found.trace.block_size_tokens, unlimited(found)
    blocks = found.atoms.blocks[found.atoms.ref]
    kept = _kept(found, blocks, capacity_blocks, mode)
    spare = found.is_reusable & ~found.is_head
    tokens = _kept(found, found.tokens, capacity_blocks * size, mode)
    most_tokens = int(tokens.sum()) + int(found.tokens[spare].sum())
    most_blocks = int(kept.sum()) + int(blocks[spare].sum())
    if weight == "blocks":
        most_tokens = min(most_tokens, most_blocks * size)
    else:
        full = _kept(found, found.full_blocks, capacity_blocks, mode)
        partial = (blocks - found.full_blocks)[found.is_reusable & found.is_head]
        most_blocks = int(full.sum() + partial.sum() + blocks[spare].sum())
    high = Bound(min(most_blocks, everything.blocks), min(most_tokens, everything.tokens))
    return Optimum(_leading_hits(found, kept), high)


def _leading_hits(found: Intervals, kept: IntArray) -> IntArray:
    """(requests,) leading blocks of what is kept of each reference (refs,)."""
    atoms = found.atoms
    blocks = atoms.blocks[atoms.ref]
    if not found.is_tree:
        first = _first_in_request(atoms, kept > 0)
        kept = np.where(found.is_head, kept, np.where(first, blocks, 0))
    request = atoms.request
    missing = prefix_sums((kept < blocks).astype(np.int64))
    leads = missing[:-1] == missing[atoms.offset[:-1]][request]
    hits = np.zeros(found.trace.requests, dtype=np.int64)
    np.add.at(hits, request[leads], kept[leads])
    return hits


def _kept(found: Intervals, size: IntArray, room: int, mode: Mode) -> IntArray:
    """(refs,) how much of each interval, of `size` (refs,) at its end, is kept up to its end."""
    refs = len(found.atoms.ref)
    if room >= int(size.max(initial=0)) * len(found.atoms.start):
        served = found.is_reusable & found.is_head
        return np.where(served, size, 0)
    kernel: Kernel = furthest_kept
    scratch = np.zeros(len(found.atoms.start), dtype=np.int64)
    filled = run_kernel(
        kernel,
        [
            found.atoms.ref,
            found.atoms.offset,
            found.opens,
            found.is_head.astype(np.int64),
            size,
            room,
            scratch,
            scratch - 1,
            np.zeros(refs, dtype=np.int64),
        ],
        is_compiled=is_worth_compiling(mode, refs),
    )
    return filled[-1]


def furthest_kept(
    atom: Ints,
    offset: Ints,
    opens: Ints,
    is_head: Ints,
    size: Ints,
    room: int,
    held: Ints,
    until: Ints,
    kept: Ints,
) -> None:
    """Fill `kept` (refs,): after each request, what ends last goes first until the rest fits.

    Intervals that end in the same request go from the deepest on; of one interval a part can go.
    """
    heap = [0]
    heap.pop()
    used = 0
    for request in range(len(offset) - 1):
        for i in range(offset[request], offset[request + 1]):
            if is_head[i] == 1:
                kept[i] = held[atom[i]]
                used -= held[atom[i]]
                held[atom[i]] = 0
        for i in range(offset[request], offset[request + 1]):
            if is_head[i] == 1 and opens[i] >= 0:
                held[atom[i]] = size[opens[i]]
                used += size[opens[i]]
                until[atom[i]] = opens[i]
                heappush(heap, -opens[i])
        while used > room:
            last = -heap[0]
            out = atom[last]
            if until[out] == last and held[out] > 0:
                gone = min(held[out], used - room)
                held[out] -= gone
                used -= gone
            if until[out] != last or held[out] == 0:
                heappop(heap)
