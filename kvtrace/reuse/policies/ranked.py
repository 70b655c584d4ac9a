"""Policies that rank blocks and evict the lowest leaf: FIFO, LFU, length-aware, leaf-LRU.

A leaf is a cached block with no cached block after it. A request is looked up whole; then the
blocks that were there are touched, then the missing ones are put in from the head on, each after
making room. No block of the request itself makes room for another, so what a request finds at its
end is always a prefix, whatever the ranking says.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from kvtrace.reuse.policies.kernels import Bools, Ints

FIFO: Final = 0
LEAF_LRU: Final = 1
LFU: Final = 2
LENGTH_AWARE: Final = 3


def ranked_hits(
    block: Ints,
    offset: Ints,
    weight: Ints,
    admitted: Bools,
    room: int,
    rule: int,
    levels: int,
    stamp: Ints,
    rank: Ints,
    parent: Ints,
    kids: Ints,
    owner: Ints,
    ends_node: Ints,
    hit: Ints,
    stored: Ints,
) -> None:
    """Fill `hit` and `stored` (requests,) under one rule; the other arrays (blocks,) are scratch.

    Victim: the leaf with the least (rank, stamp). The stamp is when the block was put in (FIFO) or
    last touched, tail before head. The rank counts touches (LFU), above that prefers blocks near
    the head (length-aware; `levels` is more than any position), or is 0. Leaf-LRU evicts a whole
    radix node: the leaf and the blocks before it up to where another request branched off or
    ended. `stamp`, `parent`, `owner` come as -1, the rest as 0.
    """
    heap = [(0, 0, 0)]
    heap.pop()
    used = 0
    step = levels if rule == 3 else 1
    for request in range(len(offset) - 1):
        start, end = offset[request], offset[request + 1]
        place = start
        while place < end and stamp[block[place]] >= 0:
            place += 1
        hit[request] = place - start
        if place > start:
            ends_node[block[place - 1]] = 1
        for i in range(end - 1, start - 1, -1):
            held = block[i]
            if stamp[held] >= 0:
                owner[held] = request
                if rule != 0:
                    stamp[held] = start + end - 1 - i
                if rule >= 2:
                    rank[held] += step
        place, last = start, -1
        while place < end:
            new = block[place]
            if stamp[new] < 0:
                if not admitted[place]:
                    break
                while used + weight[new] > room and len(heap) > 0:
                    low, when, victim = heappop(heap)
                    if stamp[victim] != when or rank[victim] != low:
                        continue
                    if kids[victim] > 0 or owner[victim] == request:
                        continue
                    is_out = True
                    while is_out:
                        stamp[victim] = -1
                        used -= weight[victim]
                        victim = parent[victim]
                        is_out = False
                        if victim >= 0:
                            kids[victim] -= 1
                            if kids[victim] == 0 and owner[victim] != request:
                                is_out = rule == 1 and ends_node[victim] == 0
                                if not is_out:
                                    heappush(heap, (rank[victim], stamp[victim], victim))
                if used + weight[new] > room:
                    break
                used += weight[new]
                stamp[new] = start + end - 1 - place
                rank[new] = 0
                if rule >= 2:
                    rank[new] = step
                if rule == 3:
                    rank[new] += levels - 1 - (place - start)
                parent[new] = last
                owner[new] = request
                ends_node[new] = 0
                if last >= 0:
                    kids[last] += 1
            last = new
            place += 1
        stored[request] = place - start
        for i in range(start, end):
            held = block[i]
            if stamp[held] >= 0 and kids[held] == 0:
                heappush(heap, (rank[held], stamp[held], held))


def flat_fifo_hits(
    block: Ints,
    offset: Ints,
    weight: Ints,
    admitted: Bools,
    room: int,
    is_held: Ints,
    queue: Ints,
    hit: Ints,
    stored: Ints,
) -> None:
    """FIFO of keys that knows no prefix: blocks go in order of entry, also from within a prefix.

    What a plain key-value store does. A request is looked up whole, then its missing blocks enter
    from the head on, each after the oldest went; a request may push out its own. `queue`
    (refs + 1,) and `is_held` (blocks,) are scratch, all 0. `stored`: the hit and what was written.
    """
    used, oldest, newest = 0, 0, 0
    for request in range(len(offset) - 1):
        start, end = offset[request], offset[request + 1]
        place = start
        while place < end and is_held[block[place]] == 1:
            place += 1
        hit[request] = place - start
        stored[request] = place - start
        for i in range(start, end):
            new = block[i]
            if is_held[new] == 1 or not admitted[i] or weight[new] > room:
                continue
            while used + weight[new] > room:
                is_held[queue[oldest]] = 0
                used -= weight[queue[oldest]]
                oldest += 1
            is_held[new] = 1
            used += weight[new]
            queue[newest] = new
            newest += 1
            stored[request] += 1
