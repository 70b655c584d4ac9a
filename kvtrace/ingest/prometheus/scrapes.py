"""Samples put together into scrapes: by markers, by their own stamps, or by repetition."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvtrace.ingest.prometheus.series import Series
from kvtrace.ingest.prometheus.targets import Target


@dataclass(slots=True)
class Scrape:
    """The samples of one moment."""

    time_ns: int | None
    values: dict[Series, float] = field(default_factory=dict)
    first: dict[Target, tuple[int, int]] = field(default_factory=dict)
    """Offset and line of a target's first sample."""
    has_damage: bool = False
    """A line of it could not be read: a series that is missing may have been there."""

    def add(self, series: Series, value: float, offset: int, line: int) -> bool:
        """Take a sample; False if the series is there already."""
        if series in self.values:
            return False
        self.values[series] = value
        if series.target not in self.first or offset < self.first[series.target][0]:
            self.first[series.target] = (offset, line)
        return True


class ScrapeBook:
    """The scrapes of a file while it is read."""

    def __init__(self) -> None:
        self._scrapes: list[Scrape] = []
        self._stamped: dict[int, Scrape] = {}
        self._marked: dict[int, Scrape] = {}
        self._open: Scrape | None = None
        self._seen: set[tuple[str, str]] = set()
        self._is_marked = False
        self._has_damage = False

    def mark(self, time_ns: int | None) -> None:
        """A marker line: what follows was scraped then. Equal markers are one scrape."""
        self.end()
        self._is_marked = True
        self._open = self._marked.get(time_ns) if time_ns is not None else None
        if self._open is None:
            self._open = self._new(time_ns)
            if time_ns is not None:
                self._marked[time_ns] = self._open

    def end(self) -> None:
        """The exposition ends here."""
        self._open, self._is_marked = None, False
        self._seen.clear()

    def saw(self, name: str, labels_text: str) -> None:
        """Any sample without a stamp, used or not: one seen before starts another scrape."""
        if self._is_marked:
            return
        key = (name, labels_text)
        if key in self._seen:
            self.end()
        self._seen.add(key)

    def damaged(self) -> None:
        """A line here could not be read."""
        self._has_damage = True
        if self._open is not None:
            self._open.has_damage = True

    def add(self, series: Series, value: float, offset: int, line: int) -> bool:
        """Take a sample without a stamp; False if its scrape has the series already."""
        if self._open is None:
            self._open = self._new(None)
        return self._open.add(series, value, offset, line)

    def add_stamped(
        self, series: Series, value: float, time_ns: int, offset: int, line: int
    ) -> bool:
        """Take a sample with a stamp; a marker's time goes before it."""
        if self._is_marked and self._open is not None:
            return self._open.add(series, value, offset, line)
        scrape = self._stamped.get(time_ns)
        if scrape is None:
            scrape = self._stamped[time_ns] = self._new(time_ns)
        return scrape.add(series, value, offset, line)

    def _new(self, time_ns: int | None) -> Scrape:
        scrape = Scrape(time_ns)
        self._scrapes.append(scrape)
        return scrape

    def finish(self) -> list[Scrape]:
        """The scrapes with samples in order of time; of file where a time is unknown."""
        found = [scrape for scrape in self._scrapes if scrape.values]
        if all(scrape.time_ns is not None for scrape in found):
            found.sort(key=lambda scrape: scrape.time_ns or 0)
        if self._has_damage and self._stamped:
            for scrape in found:  # a line that cannot be read has no stamp either
                scrape.has_damage = True
        return found
