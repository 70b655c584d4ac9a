"""Exact LRU stack distances of weighted atoms, from the touch order alone.

A request is looked up whole, against the state before it, and then touched tail to head. The
distance of an atom's head, counted from 1, is the weight of all that was touched more recently
than the atom, plus 1. Two implementations give the same integers: numpy, offline, without a
compiler; and a Fenwick tree that numba compiles, for big work only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, cast

import numpy as np

from kvtrace.reuse.runs import Atoms, prefix_sums
from kvtrace.schema.arrays import BoolArray, IntArray

COMPILE_FROM_REFS: Final = 2_000_000
"""Atom references from which a compiler pays: a second of numpy against a JIT of several."""

Kernel = Literal["auto", "numpy", "numba"]


@dataclass(frozen=True, slots=True)
class Distances:
    """Per atom reference, in request order."""

    previous_request: IntArray
    """(refs,) index of the last earlier request that held the atom, -1: none."""
    first_request: IntArray
    """(refs,) index of the first request that held the atom."""
    is_reusable: BoolArray
    """(refs,) an earlier request held the atom and every atom before it in the request."""
    blocks: IntArray
    """(refs,) distance of the head in blocks, running maximum in the request; -1: not reusable."""
    tokens: IntArray
    """(refs,) the same in tokens."""
    head_tokens: IntArray
    """(refs,) the same in tokens without the running maximum."""
    is_ragged: BoolArray
    """(refs,) something earlier in the request lies deeper than this head: its blocks become hits
    all at once, not one by one, unless the atom is cut into single blocks."""


@dataclass(frozen=True, slots=True)
class _Holders:
    """Who held the atom of each reference before."""

    head: IntArray
    """(refs,) the first reference to the same atom in the same request (often itself)."""
    previous: IntArray
    """(refs,) the head of the last earlier request that held the atom, -1: none."""
    first: IntArray
    """(refs,) the first reference to the atom."""


def stack_distances(atoms: Atoms, tokens: IntArray, *, kernel: Kernel = "auto") -> Distances:
    """Distances of all references; `tokens` (atoms,) is the weight of each atom in tokens."""
    request = atoms.request
    holders = _find_holders(atoms.ref, request)
    is_seen = holders.previous >= 0
    is_reusable = _leading(is_seen, atoms.offset, request)
    touch, touch_offset = _touch_order(holders.head, atoms.offset, request)
    asked = np.flatnonzero(is_reusable & (holders.head == np.arange(len(atoms.ref))))
    touched = np.empty(touch_offset[-1], dtype=np.int64)
    is_head = touch >= 0
    touched[touch[is_head]] = np.flatnonzero(is_head)
    before = holders.previous[touched]
    weigh = _weigh(len(atoms.ref), kernel)
    sums = weigh(
        np.where(before >= 0, touch[before], -1),
        atoms.blocks[atoms.ref[touched]],
        tokens[atoms.ref[touched]],
        touch[holders.previous[asked]],
        touch_offset[request[asked]],
    )
    return _spread(atoms, tokens, holders, is_reusable, asked, sums)


def _find_holders(ref: IntArray, request: IntArray) -> _Holders:
    """Group the references by atom (order kept: by request, then position) and look back."""
    refs = len(ref)
    order = np.argsort(ref, kind="stable")
    atom, owner, place = ref[order], request[order], np.arange(refs)
    opens_atom = np.ones(refs, dtype=np.bool_)
    opens_atom[1:] = atom[1:] != atom[:-1]
    opens_request = opens_atom.copy()
    opens_request[1:] |= owner[1:] != owner[:-1]
    first = np.maximum.accumulate(np.where(opens_atom, place, 0))
    head = np.maximum.accumulate(np.where(opens_request, place, 0))
    previous = np.where(head > first, head[head - 1], -1)
    result = np.empty((3, refs), dtype=np.int64)
    result[0, order] = order[head]
    result[1, order] = np.where(previous >= 0, order[previous], -1)
    result[2, order] = order[first]
    return _Holders(result[0], result[1], result[2])


def _leading(is_seen: BoolArray, offset: IntArray, request: IntArray) -> BoolArray:
    """(refs,) whether the reference and all before it in its request were seen."""
    unseen = prefix_sums((~is_seen).astype(np.int64))
    return np.asarray(unseen[1:] == unseen[offset[:-1]][request], dtype=np.bool_)


def _touch_order(head: IntArray, offset: IntArray, request: IntArray) -> tuple[IntArray, IntArray]:
    """When each reference is touched, tail to head, and where each request's touches start.

    An atom that a request names twice counts once, at its last touch, which is its first place
    (the later place gets -1).
    """
    is_head = head == np.arange(len(head))
    heads = prefix_sums(is_head.astype(np.int64))
    touch_offset = heads[offset]
    mirrored = touch_offset[1:][request] - 1 - (heads[:-1] - touch_offset[:-1][request])
    return np.where(is_head, mirrored, -1), touch_offset


Weigh = Callable[[IntArray, IntArray, IntArray, IntArray, IntArray], tuple[IntArray, IntArray]]


def _weigh(refs: int, kernel: Kernel) -> Weigh:
    use_numba = kernel == "numba" or (kernel == "auto" and refs >= COMPILE_FROM_REFS)
    return compiled_weights() if use_numba else window_weights


def window_weights(
    previous: IntArray, blocks: IntArray, tokens: IntArray, after: IntArray, until: IntArray
) -> tuple[IntArray, IntArray]:
    """Weights, in blocks and in tokens, of the distinct atoms touched in the open (after, until).

    An atom counts at its first touch inside the window: touch j with previous[j] <= after. The sum
    over such j is a dominance count; a wavelet matrix over `previous` answers all windows at once,
    bit by bit from the top.
    """
    keys, weights = previous + 1, (blocks, tokens)
    low, high, bound = after + 1, until.copy(), after + 2
    sums = (np.zeros(len(after), dtype=np.int64), np.zeros(len(after), dtype=np.int64))
    for bit in range(int(len(previous) + 1).bit_length() - 1, -1, -1):
        is_zero = (keys >> bit) & 1 == 0
        zeros = prefix_sums(is_zero.astype(np.int64))
        takes_zeros = (bound >> bit) & 1 == 1
        some_low, some_high = low[takes_zeros], high[takes_zeros]
        for total, weight in zip(sums, weights, strict=True):
            weight_before = prefix_sums(np.where(is_zero, weight, 0))
            total[takes_zeros] += weight_before[some_high] - weight_before[some_low]
        zeros_low, zeros_high = zeros[low], zeros[high]
        low = np.where(takes_zeros, zeros[-1] + low - zeros_low, zeros_low)
        high = np.where(takes_zeros, zeros[-1] + high - zeros_high, zeros_high)
        order = np.concatenate((np.flatnonzero(is_zero), np.flatnonzero(~is_zero)))
        keys, weights = keys[order], (weights[0][order], weights[1][order])
    return sums


def fenwick_weights(
    previous: IntArray, blocks: IntArray, tokens: IntArray, after: IntArray, until: IntArray
) -> tuple[IntArray, IntArray]:
    """The same sums as `window_weights`, walked in touch order; `until` must not decrease.

    Each atom stands in a Fenwick tree at its last touch only, so a window sum is what lies past
    `after`.
    """
    touches = len(previous)
    tree = np.zeros((touches + 1, 2), dtype=np.int64)
    live_blocks, live_tokens, touched = 0, 0, 0
    sum_blocks = np.zeros(len(after), dtype=np.int64)
    sum_tokens = np.zeros(len(after), dtype=np.int64)
    for query in range(len(after)):
        while touched < until[query]:
            node = touched + 1
            while node <= touches:
                tree[node, 0] += blocks[touched]
                tree[node, 1] += tokens[touched]
                node += node & -node
            if previous[touched] >= 0:
                node = previous[touched] + 1
                while node <= touches:
                    tree[node, 0] -= blocks[touched]
                    tree[node, 1] -= tokens[touched]
                    node += node & -node
            else:
                live_blocks += blocks[touched]
                live_tokens += tokens[touched]
            touched += 1
        older_blocks, older_tokens, node = 0, 0, after[query] + 1
        while node > 0:
            older_blocks += tree[node, 0]
            older_tokens += tree[node, 1]
            node -= node & -node
        sum_blocks[query] = live_blocks - older_blocks
        sum_tokens[query] = live_tokens - older_tokens
    return sum_blocks, sum_tokens


@cache
def compiled_weights() -> Weigh:
    """`fenwick_weights`, compiled; the machine code is cached beside the module."""
    from numba import njit

    return cast("Weigh", njit(cache=True)(fenwick_weights))


def _spread(
    atoms: Atoms,
    tokens: IntArray,
    holders: _Holders,
    is_reusable: BoolArray,
    asked: IntArray,
    sums: tuple[IntArray, IntArray],
) -> Distances:
    """From the asked references to all, with the running maximum along each request."""
    refs, request = len(atoms.ref), atoms.request
    raw = np.full((2, refs), -1, dtype=np.int64)
    raw[0, asked], raw[1, asked] = sums[0] + 1, sums[1] + 1
    leading = np.flatnonzero(is_reusable)
    near = raw[:, holders.head[leading]]
    length = np.stack((atoms.blocks, tokens))[:, atoms.ref[leading]]
    owner = request[leading]
    head_tokens = np.full(refs, -1, dtype=np.int64)
    head_tokens[leading] = near[1]
    deepest = np.stack([_deepest_before(near[i] + length[i] - 1, owner) for i in (0, 1)])
    raw[:, leading] = np.maximum(near, deepest)
    is_ragged = np.zeros(refs, dtype=np.bool_)
    is_ragged[leading] = deepest[0] > near[0]
    return Distances(
        previous_request=np.where(holders.previous >= 0, request[holders.previous], -1),
        first_request=request[holders.first],
        is_reusable=is_reusable,
        blocks=raw[0],
        tokens=raw[1],
        head_tokens=head_tokens,
        is_ragged=is_ragged,
    )


def _deepest_before(depth: IntArray, owner: IntArray) -> IntArray:
    """(n,) largest depth of the earlier entries of the same owner, 0 for its first entry."""
    size = len(depth)
    if size == 0:
        return depth
    values, rank = np.unique(depth, return_inverse=True)
    # Ranks stay below `size`, so one offset per owner keeps the owners apart without overflow.
    running = np.maximum.accumulate(rank + owner * size) - owner * size
    before = np.zeros(size, dtype=np.int64)
    before[1:] = np.where(owner[1:] == owner[:-1], values[running[:-1]], 0)
    return before
