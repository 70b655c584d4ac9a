"""Orders that remember what they let go: ARC and S3-FIFO over prefixes.

The online twins of `kvtrace.reuse.policies.arc` and `s3_fifo`, block by block.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from kvtrace.replay.orders import IsKept, LeafOrder, Leaves, PlainOrder

_ONCE: Final = 0
_OFTEN: Final = 1


class ArcOrder(LeafOrder):
    """ARC: the least recent leaf of the list that the target names, else of the other.

    Source: Megiddo and Modha, ARC, FAST 2003, figure 4.
    """

    __slots__ = (
        "_counts",
        "_ghosts",
        "_heaps",
        "_list",
        "_met",
        "_room",
        "_stamp",
        "_target",
    )

    def __init__(self, room: int, parent: Sequence[int]) -> None:
        self._room = room
        self._leaves = Leaves(parent)
        self._list: dict[int, int] = {}
        """Which list each block is in: asked for once of late, or more often."""
        self._stamp: dict[int, int] = {}
        self._counts = [0, 0]
        self._ghosts: tuple[OrderedDict[int, None], OrderedDict[int, None]] = (
            OrderedDict(),
            OrderedDict(),
        )
        self._heaps: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        self._met = -1
        """The ghosts that the block to come in is among; -1: neither."""
        self._target = 0.0

    def touch(self, block: int, stamp: int, request: int) -> None:
        """Asked for more often."""
        self._leaves.owner[block] = request
        self._stamp[block] = stamp
        self._counts[self._list[block]] -= 1
        self._counts[_OFTEN] += 1
        self._list[block] = _OFTEN

    def meet(self, block: int) -> None:
        """A ghost shifts the target to its list."""
        once, often = self._ghosts
        self._met = _ONCE if block in once else _OFTEN if block in often else -1
        if self._met == _ONCE:
            self._target = min(self._room, self._target + max(1.0, len(often) / len(once)))
        elif self._met == _OFTEN:
            self._target = max(0.0, self._target - max(1.0, len(once) / len(often)))

    def enter(self, block: int, stamp: int, request: int, place: int) -> None:
        """A ghost comes back as asked for often, any other as once."""
        for ghosts in self._ghosts:
            ghosts.pop(block, None)
        self._list[block] = _ONCE if self._met < 0 else _OFTEN
        self._counts[self._list[block]] += 1
        self._stamp[block] = stamp
        self._leaves.enter(block, request)

    def victims(self, request: int, is_kept: IsKept | None) -> list[int]:
        """One leaf of another request, which becomes a ghost."""
        leaves_ghost = self._met >= 0 or self._trim()
        in_once = self._counts[_ONCE]
        is_over = in_once > self._target or (self._met == _OFTEN and in_once == self._target)
        wanted = _ONCE if not leaves_ghost or (in_once > 0 and is_over) else _OFTEN
        for kind in (wanted, 1 - wanted):
            block = self._leaf(kind, request, is_kept)
            if block >= 0:
                above = self._drop(block)
                if leaves_ghost or kind == _OFTEN:
                    self._ghosts[kind][block] = None
                if above >= 0 and self._leaves.owner[above] != request:
                    self._push(above)
                return [block]
        return []

    def _trim(self) -> bool:
        """Let the oldest ghost go where there are too many; False: the victim becomes none."""
        once, often = self._ghosts
        in_once, in_often = self._counts
        if in_once + len(once) + 1 > self._room:
            if not once:
                return False
            once.popitem(last=False)
        elif often and in_once + len(once) + in_often + len(often) + 1 > 2 * self._room:
            often.popitem(last=False)
        return True

    def _leaf(self, kind: int, request: int, is_kept: IsKept | None) -> int:
        heap, aside, block = self._heaps[kind], [], -1
        while heap and block < 0:
            stamp, leaf = entry = heappop(heap)
            if self._stamp.get(leaf) != stamp or self._list[leaf] != kind:
                continue
            if not self._leaves.is_leaf(leaf) or self._leaves.owner[leaf] == request:
                continue
            if is_kept is not None and is_kept(leaf):
                aside.append(entry)
            else:
                block = leaf
        for entry in aside:
            heappush(heap, entry)
        return block

    def _drop(self, block: int) -> int:
        self._counts[self._list.pop(block)] -= 1
        del self._stamp[block]
        return self._leaves.leave(block)

    def _push(self, block: int) -> None:
        heappush(self._heaps[self._list[block]], (self._stamp[block], block))


_SMALL_SHARE: Final = 10
"""One part in so many of the room is the small queue's."""
_PROMOTE_FROM: Final = 2
"""Uses in the small queue from which a block goes on to the main queue."""
_MOST_USES: Final = 3
"""Uses that the main queue remembers: two bits."""
_SMALL: Final = 0
_MAIN: Final = 1


class S3FifoOrder(PlainOrder):
    """S3-FIFO: a small queue that sieves, a main one with second chances, ghosts.

    A block with blocks behind it, or of the request itself, takes another round in its queue.
    Source: Yang, Zhang, Qiu, Yue, Vinayak, FIFO queues are all you need, SOSP 2023, section 4.
    """

    __slots__ = (
        "_counts",
        "_ghosts",
        "_is_ghost",
        "_leaves",
        "_new",
        "_queues",
        "_room",
        "_tickets",
        "_uses",
        "_was_full",
        "_where",
    )

    def __init__(self, room: int, parent: Sequence[int]) -> None:
        self._room = room
        self._leaves = Leaves(parent)
        self._uses: dict[int, int] = {}
        self._where: dict[int, int] = {}
        """The queue of each block that is there."""
        self._tickets: dict[int, int] = {}
        """Which entry in its queue is meant; entries of earlier stays are void."""
        self._counts = [0, 0]
        self._queues: tuple[deque[tuple[int, int]], deque[tuple[int, int]]] = (deque(), deque())
        self._ghosts: OrderedDict[int, None] = OrderedDict()
        self._new: list[int] = []
        self._is_ghost = False
        self._was_full = False

    def touch(self, block: int, stamp: int, request: int) -> None:
        """One use more."""
        self._leaves.owner[block] = request
        self._uses[block] += 1

    def meet(self, block: int) -> None:
        """A ghost is one no more."""
        self._is_ghost = block in self._ghosts
        self._ghosts.pop(block, None)

    def enter(self, block: int, stamp: int, request: int, place: int) -> None:
        """Into the small queue; the main one if it was a ghost, or small is full at the start."""
        is_full = self._counts[_SMALL] >= self._room // _SMALL_SHARE
        kind = _MAIN if self._is_ghost or (not self._was_full and is_full) else _SMALL
        self._where[block] = kind
        self._counts[kind] += 1
        self._uses[block] = 0
        self._tickets[block] = stamp
        self._leaves.enter(block, request)
        self._new.append(block)

    def victims(self, request: int, is_kept: IsKept | None) -> list[int]:
        """The oldest of the queue that is over its share, or of the other."""
        self._was_full = True
        main_room = self._room - self._room // _SMALL_SHARE
        has_small = self._counts[_SMALL] > 0 and self._counts[_MAIN] <= main_room
        first = _SMALL if has_small else _MAIN
        for kind in (first, 1 - first):
            block = self._oldest(kind, request, is_kept)
            if block >= 0:
                self.leave(block)
                if kind == _SMALL:
                    self._haunt(block)
                return [block]
        return []

    def _oldest(self, kind: int, request: int, is_kept: IsKept | None) -> int:
        """The first of the queue that may go, after moving those that may not; -1: none."""
        queue = self._queues[kind]
        uses, owner = self._uses, self._leaves.owner
        for _ in range(len(queue) if kind == _SMALL else 4 * len(queue)):
            if not queue:
                break
            entry = queue.popleft()
            block, ticket = entry
            if self._tickets.get(block) != ticket:
                continue
            is_bound = not self._leaves.is_leaf(block) or owner[block] == request
            is_bound = is_bound or (is_kept is not None and is_kept(block))
            if kind == _SMALL and uses[block] >= _PROMOTE_FROM:
                self._where[block] = _MAIN
                self._counts[_SMALL] -= 1
                self._counts[_MAIN] += 1
                uses[block] = 0
                self._queues[_MAIN].append(entry)
            elif kind == _SMALL and is_bound:
                queue.append(entry)
            elif kind == _MAIN and (is_bound or uses[block]):
                uses[block] = max(0, min(uses[block], _MOST_USES) - 1)
                queue.append(entry)
            else:
                return block
        return -1

    def _haunt(self, block: int) -> None:
        room = self._room * (_SMALL_SHARE - 1) // _SMALL_SHARE
        if room:
            self._ghosts[block] = None
        while len(self._ghosts) > room:
            self._ghosts.popitem(last=False)

    def leave(self, block: int) -> None:
        """Forget it."""
        self._counts[self._where.pop(block)] -= 1
        del self._uses[block], self._tickets[block]
        self._leaves.leave(block)

    def offer(self, blocks: Sequence[int]) -> None:
        """What came in joins its queue, tail first."""
        for block in reversed(self._new):
            if block in self._where:
                self._queues[self._where[block]].append((block, self._tickets[block]))
        self._new.clear()
