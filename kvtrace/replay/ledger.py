"""What crossed each link when: bytes by equal stretches of time, read and written.

The flows of a link have constant rates between two events of the net, so what is booked for a
stretch is exact: what each flow was served until its end, and no rate is averaged over an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvtrace.schema.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class LinkStretches:
    """One kind of link over time; the arrays are (stretches,) long."""

    link_id: str
    links: int
    """How many such links there are."""
    bytes_per_s: float
    """What all of them together can move."""
    read_bytes: FloatArray
    written_bytes: FloatArray


class LinkLedger:
    """Books of all links of one run; give it to `simulate` and read `rows` afterwards."""

    __slots__ = ("_ids", "_origin_s", "_rates", "_read", "_written", "width_s")

    def __init__(self, width_s: float) -> None:
        self.width_s = width_s
        """Seconds of a stretch."""
        self._origin_s = 0.0
        self._ids: tuple[str, ...] = ()
        self._rates: tuple[float, ...] = ()
        self._read: list[list[float]] = []
        self._written: list[list[float]] = []

    def open(self, link_ids: Sequence[str], bytes_per_s: Sequence[float], origin_s: float) -> None:
        """Begin empty books of these links; time counts from `origin_s`."""
        self._ids, self._rates, self._origin_s = tuple(link_ids), tuple(bytes_per_s), origin_s
        self._read = [[] for _ in self._ids]
        self._written = [[] for _ in self._ids]

    def stretch_at(self, time_s: float) -> int:
        """The stretch in which a time lies; what is before the first one belongs to it."""
        return max(0, int((time_s - self._origin_s) // self.width_s))

    def end_of(self, stretch: int) -> float:
        """When a stretch ends, on the clock of the replay."""
        return self._origin_s + (stretch + 1) * self.width_s

    def book(self, links: Sequence[int], stretch: int, *, read: float, written: float) -> None:
        """So many bytes crossed all these links in a stretch."""
        for books, size in ((self._read, read), (self._written, written)):
            if size:
                for link in links:
                    book = books[link]
                    if len(book) <= stretch:
                        book.extend([0.0] * (stretch + 1 - len(book)))
                    book[stretch] += size

    def rows(self) -> tuple[LinkStretches, ...]:
        """One row per kind of link, in order of first use; all have the same stretches."""
        books = (*self._read, *self._written)
        stretches = max(map(len, books), default=0)
        rows = []
        for link_id in dict.fromkeys(self._ids):
            links = [index for index, kind in enumerate(self._ids) if kind == link_id]
            rows.append(
                LinkStretches(
                    link_id=link_id,
                    links=len(links),
                    bytes_per_s=sum(self._rates[link] for link in links),
                    read_bytes=_total([self._read[link] for link in links], stretches),
                    written_bytes=_total([self._written[link] for link in links], stretches),
                )
            )
        return tuple(rows)


def _total(books: Sequence[Sequence[float]], stretches: int) -> FloatArray:
    total = np.zeros(stretches, dtype=np.float64)
    for book in books:
        total[: len(book)] += book
    return total
