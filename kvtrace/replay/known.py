"""What a router knows of the caches: their contents some seconds ago."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from kvtrace.replay.blocks import HbmCache, LruCache, extend_run
from kvtrace.replay.caches import BlockCache
from kvtrace.replay.chain import Run
from kvtrace.replay.state import Instance, Requests
from kvtrace.replay.topology import Tier

Content = dict[int, int]
"""Blocks stored by atom."""


class _Told(OrderedDict[int, int]):
    """Contents of a cache that tell of each change: (who is told, atom, blocks now)."""

    def __init__(
        self, content: Mapping[int, int], view: Content, news: list[tuple[Content, int, int]]
    ) -> None:
        self._view = view
        self._news: list[tuple[Content, int, int]] = []
        super().__init__(content)
        self._news = news

    def __setitem__(self, atom: int, blocks: int) -> None:
        super().__setitem__(atom, blocks)
        self._news.append((self._view, atom, blocks))

    def __delitem__(self, atom: int) -> None:
        super().__delitem__(atom)
        self._news.append((self._view, atom, 0))

    def pop(self, atom: int, default: int = 0) -> int:  # type: ignore[override]
        """Take the atom out; what it held."""
        blocks = self.get(atom, default)
        if atom in self:
            del self[atom]
        return blocks

    def popitem(self, last: bool = True) -> tuple[int, int]:
        """Take the most (or least) recent atom out."""
        atom = next(reversed(self) if last else iter(self))
        return atom, self.pop(atom)


class KnownCaches:
    """The contents of all instances' HBM and private tiers, as they were `age_s` ago.

    At an age of 0 these are the caches themselves. Create it when caches hold what they start with.
    """

    def __init__(
        self,
        requests: Requests,
        instances: Sequence[Instance],
        tiers: Sequence[Tier],
        *,
        age_s: float,
        is_ideal: bool,
    ) -> None:
        table = requests.table
        self._atoms, self._offset, self._weight = table.atoms, table.offset, table.blocks
        self._age_s = age_s
        self.news: list[tuple[Content, int, int]] = []
        """Changes since `hear` was last called; always empty at an age of 0."""
        self._heard: deque[tuple[float, Content, int, int]] = deque()
        hbm = [one.ideal_hbm if is_ideal else one.hbm for one in instances]
        self._hbm = [self._watch(cache) for cache in hbm]
        self._tiers = [
            [tier.caches[0].stored] * len(instances)
            if tier.spec.scope == "shared"
            else [self._watch(cache) for cache in tier.caches]
            for tier in tiers
        ]
        self._private = [
            content
            for tier, content in zip(tiers, self._tiers, strict=True)
            if tier.spec.scope == "instance"
        ]

    def _watch(self, cache: LruCache | HbmCache | BlockCache) -> Content:
        if not self._age_s:
            return cache.stored
        view = dict(cache.stored)
        cache.stored = _Told(cache.stored, view, self.news)
        return view

    def hear(self, now: float) -> None:
        """The changes since the last call happened at `now`."""
        self._heard.extend((now, *change) for change in self.news)
        self.news.clear()

    def catch_up(self, now: float) -> None:
        """Learn what was so at `now - age_s`."""
        heard, limit_s = self._heard, now - self._age_s
        while heard and heard[0][0] <= limit_s:
            _, view, atom, blocks = heard.popleft()
            if blocks:
                view[atom] = blocks
            else:
                view.pop(atom, None)

    def hbm_run(self, request: int, instance: int) -> Run:
        """The leading run that HBM of the instance held."""
        offset = self._offset
        return extend_run(
            self._hbm[instance],
            self._weight,
            self._atoms,
            offset[request],
            0,
            offset[request + 1],
        )

    def tier_run(self, request: int, instance: int, tier: int, run: Run) -> Run:
        """The run continued through what a tier held for the instance."""
        at, depth, blocks = run
        at, depth, gained = extend_run(
            self._tiers[tier][instance],
            self._weight,
            self._atoms,
            at,
            depth,
            self._offset[request + 1],
        )
        return at, depth, blocks + gained

    def private_blocks(self, request: int, instance: int) -> int:
        """Leading blocks in HBM and the private tiers of the instance."""
        at, depth, blocks = self.hbm_run(request, instance)
        end = self._offset[request + 1]
        for content in self._private:
            if at == end:
                break
            at, depth, gained = extend_run(
                content[instance], self._weight, self._atoms, at, depth, end
            )
            blocks += gained
        return blocks
