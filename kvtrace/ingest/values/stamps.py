"""The stamps of the rows of a text log, flat; they become instants when the file has been read."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl

from kvtrace.ingest.contract import LineTime

Resolver = Callable[[LineTime], int | None]
"""From the stamps of a log line to its time in ns."""
_UNKNOWN: Final = -(1 << 63)
_PACKED_TIMES: Final = 4_096


class RowStamps:
    """What dates each row; rows of one second share the stamps of a line, and these are held once.

    Stamps are packed into arrays on the way: those of a million lines would be objects of 200 MB.
    """

    def __init__(self) -> None:
        self._which = array("q")
        """A row: the number of its stamps, -1 if it dates itself."""
        self._last: LineTime | None = None
        self._number = -1
        self._times: list[LineTime] = []
        self._packed = tuple(array("q") for _ in LineTime._fields)

    def add(self, time: LineTime | None) -> None:
        """Of the next row; None: the row dates itself."""
        if time is None:
            self._which.append(-1)
            return
        if time is not self._last:
            self._last = time
            self._number += 1
            self._times.append(time)
            if len(self._times) >= _PACKED_TIMES:
                self._pack()
        self._which.append(self._number)

    def _pack(self) -> None:
        for held, values in zip(self._packed, zip(*self._times, strict=True), strict=False):
            held.extend([_UNKNOWN if value is None else value for value in values])
        self._times.clear()

    def resolved(self, own: pl.Series, resolve: Resolver | None) -> tuple[pl.Series, pl.Series]:
        """(instants, whether each came from a line); `own` are of rows that date themselves."""
        which = np.frombuffer(self._which, dtype=np.int64)
        is_timed = pl.Series(which >= 0)
        if resolve is None or self._number < 0:
            return own, is_timed
        self._pack()
        found = [resolve(_unpacked(*packed)) for packed in zip(*self._packed, strict=True)]
        times = pl.Series(found, dtype=pl.Int64).gather(np.maximum(which, 0))
        return times.zip_with(is_timed, own), is_timed


def _unpacked(instant_ns: int, naive_ns: int, month_day: int, time_ns: int, wraps: int) -> LineTime:
    return LineTime(
        None if instant_ns == _UNKNOWN else instant_ns,
        None if naive_ns == _UNKNOWN else naive_ns,
        None if month_day == _UNKNOWN else month_day,
        time_ns,
        wraps,
    )
