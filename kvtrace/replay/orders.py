"""Which block a cache lets go: LRU, FIFO of keys, and ranked leaves (FIFO, LFU, length-aware).

The online twins of `kvtrace.reuse.policies`, block by block: a request's blocks that are there are
touched, tail before head; then the missing ones enter from the head on, each after room was made.
No block of the request itself makes room for another (but for `flat_fifo`, which knows no request).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

from kvtrace.replay.scenario import EvictionPolicy

IsKept = Callable[[int], bool]
"""Whether a block must stay for now (a lease)."""


class Order(Protocol):
    """The blocks of one cache, and which of them goes next."""

    @property
    def holds_prefixes(self) -> bool:
        """False: blocks of a request enter whether or not those before them did."""
        ...

    def found(self, block: int) -> None:
        """The leading run that a request found ends with this block."""
        ...

    def touch(self, block: int, stamp: int, request: int) -> None:
        """A request uses a block that is there; later stamps are more recent."""
        ...

    def meet(self, block: int) -> None:
        """A block is about to come in; room is made next."""
        ...

    def enter(self, block: int, stamp: int, request: int, place: int) -> None:
        """A block comes in; `place` is its place in the request."""
        ...

    def victims(self, request: int, is_kept: IsKept | None) -> list[int]:
        """The blocks that make room next, gone with this call; none: nothing may go."""
        ...

    def leave(self, block: int) -> None:
        """A block goes for another reason."""
        ...

    def offer(self, blocks: Sequence[int]) -> None:
        """The request that touched or put in `blocks` (head first; all are there) is done."""
        ...


class PlainOrder:
    """What most policies make of what they do not care about: nothing."""

    __slots__ = ()

    holds_prefixes = True

    def found(self, block: int) -> None:
        """Nothing."""

    def meet(self, block: int) -> None:
        """Nothing."""


class LruOrder(PlainOrder):
    """Least recently used; tails before heads."""

    __slots__ = ("_owner", "_queue")

    def __init__(self) -> None:
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._owner: dict[int, int] = {}

    def touch(self, block: int, stamp: int, request: int) -> None:
        """Most recent."""
        self._queue.move_to_end(block)
        self._owner[block] = request

    def enter(self, block: int, stamp: int, request: int, place: int) -> None:
        """Most recent, until `offer` puts heads after tails."""
        self._queue[block] = None
        self._owner[block] = request

    def victims(self, request: int, is_kept: IsKept | None) -> list[int]:
        """The least recent block of another request."""
        owner = self._owner
        for block in self._queue:
            if owner[block] == request:
                return []
            if is_kept is None or not is_kept(block):
                self.leave(block)
                return [block]
        return []

    def leave(self, block: int) -> None:
        """Forget it."""
        del self._queue[block], self._owner[block]

    def offer(self, blocks: Sequence[int]) -> None:
        """Tails before heads."""
        for block in reversed(blocks):
            self._queue.move_to_end(block)


class FlatFifoOrder(PlainOrder):
    """First in, first out, of keys that know no prefix."""

    __slots__ = ("_queue",)

    holds_prefixes = False

    def __init__(self) -> None:
        self._queue: OrderedDict[int, None] = OrderedDict()

    def touch(self, block: int, stamp: int, request: int) -> None:
        """Use changes nothing."""

    def enter(self, block: int, stamp: int, request: int, place: int) -> None:
        """Last in."""
        self._queue[block] = None

    def victims(self, request: int, is_kept: IsKept | None) -> list[int]:
        """The block that is there longest."""
        for block in self._queue:
            if is_kept is None or not is_kept(block):
                del self._queue[block]
                return [block]
        return []

    def leave(self, block: int) -> None:
        """Forget it."""
        del self._queue[block]

    def offer(self, blocks: Sequence[int]) -> None:
        """Nothing to do."""


class Leaves:
    """What policies over leaves share: who stands behind whom, and whose a block is."""

    __slots__ = ("kids", "owner", "parent")

    def __init__(self, parent: Sequence[int]) -> None:
        self.parent = parent
        """(blocks,) the block before each; -1: none."""
        self.kids: defaultdict[int, int] = defaultdict(int)
        """Blocks behind each that are there."""
        self.owner: dict[int, int] = {}
        """The last request that used each block that is there."""

    def enter(self, block: int, request: int) -> None:
        """A block comes in."""
        self.owner[block] = request
        if self.parent[block] >= 0:
            self.kids[self.parent[block]] += 1

    def leave(self, block: int) -> int:
        """A block goes; the block before it if that is now a leaf, else -1."""
        del self.owner[block]
        above = self.parent[block]
        if above < 0:
            return -1
        left = self.kids[above] - 1
        if left:
            self.kids[above] = left
            return -1
        del self.kids[above]
        return above if above in self.owner else -1

    def is_leaf(self, block: int) -> bool:
        """Whether nothing behind it is there."""
        return block not in self.kids


_LEVEL: Final = 1 << 32
"""More than any place in a request: one use more outweighs every place."""


class LeafOrder(PlainOrder, ABC):
    """Orders of which only leaves may go: a leaf stands on a heap from when it becomes one."""

    __slots__ = ("_leaves",)
    _leaves: Leaves

    def leave(self, block: int) -> None:
        """Forget it; the block before it may be a leaf now."""
        above = self._drop(block)
        if above >= 0:
            self._push(above)

    def offer(self, blocks: Sequence[int]) -> None:
        """Its leaves may go from now on."""
        for block in blocks:
            if self._leaves.is_leaf(block):
                self._push(block)

    @abstractmethod
    def _drop(self, block: int) -> int:
        """Forget it; the block before it where that is a leaf now, else -1."""

    @abstractmethod
    def _push(self, block: int) -> None:
        """The leaf may go from now on."""


class RankedOrder(LeafOrder):
    """The leaf with the least (rank, stamp).

    The rank counts uses (`lfu`), above that prefers blocks near the head (`length_aware`), or is 0.
    The stamp is when the block came in (`fifo`) or was last used. `leaf_lru` lets a whole radix
    node go: the leaf and the blocks before it up to where another request branched off or ended.
    """

    __slots__ = ("_ends", "_heap", "_policy", "_rank", "_stamp")

    def __init__(self, policy: EvictionPolicy, parent: Sequence[int]) -> None:
        self._policy = policy
        self._leaves = Leaves(parent)
        self._rank: dict[int, int] = {}
        self._stamp: dict[int, int] = {}
        self._ends: set[int] = set()
        """Blocks with which a request's hit, and so a radix node, ended."""
        self._heap: list[tuple[int, int, int]] = []

    def found(self, block: int) -> None:
        """A radix node ends here."""
        self._ends.add(block)

    def touch(self, block: int, stamp: int, request: int) -> None:
        """Counts as a use, but for FIFO."""
        self._leaves.owner[block] = request
        if self._policy != "fifo":
            self._stamp[block] = stamp
        if self._policy in ("lfu", "length_aware"):
            self._rank[block] += _LEVEL

    def enter(self, block: int, stamp: int, request: int, place: int) -> None:
        """The first use."""
        self._leaves.enter(block, request)
        self._stamp[block] = stamp
        rank = 0 if self._policy in ("fifo", "leaf_lru") else _LEVEL
        self._rank[block] = rank - place if self._policy == "length_aware" else rank
        self._ends.discard(block)

    def victims(self, request: int, is_kept: IsKept | None) -> list[int]:
        """The lowest leaf of another request; with `leaf_lru` its node."""
        heap, owner, aside = self._heap, self._leaves.owner, []
        gone: list[int] = []
        while heap and not gone:
            entry = heappop(heap)
            rank, stamp, block = entry
            if self._stamp.get(block) != stamp or self._rank[block] != rank:
                continue
            if not self._leaves.is_leaf(block) or owner[block] == request:
                continue
            if is_kept is not None and is_kept(block):
                aside.append(entry)
                continue
            gone = self._let_go(block, request, is_kept)
        for entry in aside:
            heappush(heap, entry)
        return gone

    def _let_go(self, block: int, request: int, is_kept: IsKept | None) -> list[int]:
        gone: list[int] = []
        while True:
            gone.append(block)
            above = self._drop(block)
            if above < 0 or self._leaves.owner[above] == request:
                return gone
            is_node = self._policy == "leaf_lru" and above not in self._ends
            if not is_node or (is_kept is not None and is_kept(above)):
                self._push(above)
                return gone
            block = above

    def _drop(self, block: int) -> int:
        del self._stamp[block], self._rank[block]
        return self._leaves.leave(block)

    def _push(self, block: int) -> None:
        heappush(self._heap, (self._rank[block], self._stamp[block], block))
