"""What crossed each link when: bytes by equal stretches of time, read and written.

The flows of a link have constant rates between two events of the net, so what is booked for a
stretch is exact: rate x time, cut at the edges of the stretches.
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

    def book(
        self, links: Sequence[int], since: float, until: float, *, read: float, written: float
    ) -> None:
        """Flows of `read` and `written` bytes/s in all crossed these links all that time."""
        width = self.width_s
        at = max(0.0, since - self._origin_s)
        end = until - self._origin_s
        index = int(at // width)
        while at < end:
            edge = (index + 1) * width
            spent = min(end, edge) - at
            if read:
                self._add(self._read, links, index, read * spent)
            if written:
                self._add(self._written, links, index, written * spent)
            at = edge
            index += 1

    @staticmethod
    def _add(books: list[list[float]], links: Sequence[int], index: int, size: float) -> None:
        for link in links:
            book = books[link]
            if len(book) <= index:
                book.extend([0.0] * (index + 1 - len(book)))
            book[index] += size

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
