"""What counters gained between scrapes, restarts included."""

from __future__ import annotations

from typing import NamedTuple

from kvtrace.ingest.prometheus.scrapes import Scrape
from kvtrace.ingest.prometheus.series import Series
from kvtrace.ingest.prometheus.targets import Target


class Gain(NamedTuple):
    """What a counter gained since an earlier scrape."""

    amount: float
    since: int | None
    """Number of that scrape; None: since the counter began, whenever that was."""


class GainBook:
    """Goes through the scrapes in order of time and remembers each counter's last value.

    A value that drops, or another creation time, is a restart of the whole target: its counters
    began at 0 again, and what they hold is the gain. (What was counted between the last scrape and
    the restart is lost: gains are lower bounds there.)
    """

    def __init__(self) -> None:
        self._last: dict[Series, tuple[float, int]] = {}
        self._family_seen: dict[tuple[Target, str, str], int] = {}
        self._damaged: list[bool] = []
        self.intervals: dict[Target, int] = {}
        self.restarts: dict[Target, int] = {}

    def take(self, scrape: Scrape) -> dict[Series, Gain]:
        """The gains of every counter in this scrape."""
        number = len(self._damaged)
        restarted = self._restarted(scrape)
        gains = {
            series: self._gain(series, value, series.target in restarted)
            for series, value in scrape.values.items()
            if series.is_counter
        }
        self._count(gains, restarted)
        for series, value in scrape.values.items():
            if series.kind != "gauge":
                self._last[series] = (value, number)
                self._family_seen[series.target, series.base, series.suffix] = number
        self._damaged.append(scrape.has_damage)
        return gains

    def _restarted(self, scrape: Scrape) -> set[Target]:
        found: set[Target] = set()
        for series, value in scrape.values.items():
            before = self._last.get(series)
            if before is None or series.kind == "gauge":
                continue
            is_new = value != before[0] if series.kind == "created" else value < before[0]
            if is_new:
                found.add(series.target)
        return found

    def _gain(self, series: Series, value: float, is_restarted: bool) -> Gain:
        before = self._last.get(series)
        if before is not None:
            return Gain(value if is_restarted else value - before[0], before[1])
        seen = self._family_seen.get((series.target, series.base, series.suffix))
        if seen is not None and not self._damaged[seen]:
            return Gain(value, seen)  # a label value that came up only now: it began at 0
        return Gain(value, None)

    def _count(self, gains: dict[Series, Gain], restarted: set[Target]) -> None:
        moved = {series.target for series, gain in gains.items() if gain.since is not None}
        for target in moved:
            self.intervals[target] = self.intervals.get(target, 0) + 1
        for target in restarted:
            self.restarts[target] = self.restarts.get(target, 0) + 1
