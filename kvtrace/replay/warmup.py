"""Caches as a history leaves them, without replaying it in time.

Every request of the history is taken to be in its caches as soon as it has arrived: it touches its
blocks tail to head in the HBM of its instance (`kvtrace.replay.homes`) and in every tier, which
evict the least recent blocks. Nothing is pinned, moved or timed. Since LRU caches keep the most
recently touched blocks, the result needs no loop over requests: it is each cache's last touches, in
order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvtrace.replay.blocks import AtomHistory
from kvtrace.replay.state import Instance
from kvtrace.replay.topology import Tier
from kvtrace.schema.arrays import IntArray


def warm_caches(
    history: AtomHistory,
    homes: IntArray,
    instances: Sequence[Instance],
    tiers: Sequence[Tier],
    *,
    is_ideal: bool,
) -> None:
    """Fill the caches of all instances and tiers with what `history` leaves in them.

    `homes` (requests of the history,): the instance that served each.
    """
    touches, owner = _touches(history)
    served_by = homes[owner]
    for instance in instances:
        mine = touches[served_by == instance.index] if len(instances) > 1 else touches
        size = instance.hbm.capacity_tokens // instance.hbm.block_tokens
        if is_ideal:
            cache = instance.ideal_hbm
            cache.restore(most_recent(mine, history.weight, cache.capacity))
        else:
            instance.hbm.restore(most_recent(mine, history.weight, size))
        above = size
        for tier in tiers:
            if tier.spec.scope == "instance" and not tier.spec.starts_cold:
                above += _restore(tier, instance.index, mine, history, above)
    above = size * len(instances)
    for tier in tiers:
        if tier.spec.scope == "shared" and not tier.spec.starts_cold:
            above += _restore(tier, 0, touches, history, above)


def _restore(tier: Tier, instance: int, touches: IntArray, history: AtomHistory, above: int) -> int:
    """Fill one cache; the blocks that it has beyond the `above` most recent ones.

    A tier that is written on evict holds what the caches above it (so many blocks) let go.
    """
    cache = tier.caches[instance]
    if tier.spec.write_moment == "on_compute":
        cache.restore(most_recent(touches, history.weight, cache.capacity))
        return 0
    content = most_recent(touches, history.weight, above + cache.capacity)
    while content and above >= content[-1][1]:
        above -= content.pop()[1]
    cache.restore(content)
    return cache.capacity


def most_recent(touches: IntArray, weight: IntArray, capacity: int) -> list[tuple[int, int]]:
    """(atom, blocks) that LRU keeps after `touches`, least recent first.

    The last atom to fit keeps its head: inside an atom the tail is the least recent.
    """
    if not len(touches) or capacity <= 0:
        return []
    atoms, back = np.unique(touches[::-1], return_index=True)
    atoms = atoms[np.argsort(back)]
    blocks = weight[atoms]
    before = np.cumsum(blocks) - blocks
    kept = int(np.searchsorted(before, capacity, side="left"))
    held = np.minimum(blocks[:kept], capacity - before[:kept])
    return list(zip(atoms[:kept][::-1].tolist(), held[::-1].tolist(), strict=True))


def _touches(history: AtomHistory) -> tuple[IntArray, IntArray]:
    """Atoms in order of touch (requests in order, tail to head in each), and whose touch it is."""
    offset = history.offset
    counts = np.diff(offset)
    owner = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    at = offset[owner] + offset[owner + 1] - 1 - np.arange(len(owner), dtype=np.int64)
    return history.atoms[at], owner
