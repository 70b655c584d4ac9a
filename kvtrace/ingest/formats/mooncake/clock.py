"""The clock of a Mooncake file: ms (or guidellm's s) from the start, or a date in s, ms, µs or ns.

A date is told from a time since the start by its magnitude, and so is its unit; the median of the
column decides for the file, so arrivals are known only when the last row has been read.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import LateArrivals, ReadContext
from kvtrace.schema.arrays import BoolArray, IntArray
from kvtrace.units import NS_PER_MS, NS_PER_S, NS_PER_US

DISAGREES_FLAG: Final = "clock_disagrees"
_UNITS: Final = ("milliseconds from the start", "seconds", "milliseconds", "microseconds", "ns")
_SCALES: Final = (NS_PER_MS, NS_PER_S, NS_PER_MS, NS_PER_US, 1)
"""ns of one unit, for each of `_UNITS`."""
_EPOCH_FROM: Final = (10**8, 10**11, 10**14, 10**17)
"""From here on a number is a date in s (1973), ms (1973), µs (1973), ns (1973)."""
Units = npt.NDArray[np.int8]
_UNKNOWN: Final = -1
_RELATIVE, _SECONDS = 0, 1
_SAME_ERA: Final = 0.1
"""Dates of one trace lie within this share of their median: 10 % of 2025 are five years."""
_LONGEST_RELATIVE_MS: Final = 10**9
"""11.6 days: a trace that starts near 0 may count on past 1e8 ms up to here."""
_MAX_FRACTION_S: Final = 10**6
_SUSPECT_RATE: Final = 100.0
"""Requests a second from which on the unit of relative times is doubted: one endpoint of the public
traces takes 0.1 to 10 requests a second, so 100 read as ms may well be 0.1 in seconds."""
_ENOUGH_ROWS: Final = 20
"""From here on times with fractions at such a rate are seconds: nobody stamps a burst in µs."""


@dataclass(slots=True)
class ArrivalClock:
    """Collects the timestamps of a file, one a row; `judge` says what they mean."""

    has_fractions: bool = False
    delays: int = 0
    """Rows that say how long after the turn before they start, and not when."""
    _has_seconds: bool = False
    _ns: array[int] = field(default_factory=lambda: array("q"))
    _units: array[int] = field(default_factory=lambda: array("b"))

    def add(self, timestamp: float | None) -> None:
        """The timestamp of the next row, finite, not negative, and at most `INT64_MAX` in ns."""
        if timestamp is None:
            self._ns.append(0)
            self._units.append(_UNKNOWN)
            return
        unit = 0 if timestamp < _EPOCH_FROM[0] else _unit(timestamp)
        self._units.append(unit)
        self._ns.append(to_ns(timestamp, unit))
        if isinstance(timestamp, float) and not self.has_fractions:
            self.has_fractions = not timestamp.is_integer()

    def judge(self, context: ReadContext) -> None:
        """Leave the arrivals, the clock and what was odd about it in the context."""
        units = np.frombuffer(self._units, dtype=np.int8)
        ns = np.frombuffer(self._ns, dtype=np.int64).copy()
        is_timed = units != _UNKNOWN
        if not is_timed.any():
            context.clock = "order"
            context.clock_reason = "no row has a timestamp"
            self._note_delays(context, len(units))
            return
        is_epoch = _is_epoch(ns[is_timed], units[is_timed])
        if is_epoch:
            agrees = units > _RELATIVE
        else:
            was_long = (units == _SECONDS) & (ns < _longest_ns(units[is_timed]))
            ns[was_long] //= NS_PER_S // NS_PER_MS  # a long trace: ms, not s
            agrees = (units == _RELATIVE) | was_long
            if self._are_seconds(ns[agrees]):
                ns[agrees] *= NS_PER_S // NS_PER_MS
        context.late_arrivals = LateArrivals(ns, agrees, is_timed & ~agrees, flag=DISAGREES_FLAG)
        if is_epoch:
            _describe_epoch(context, ns[agrees], units[agrees])
        else:
            self._describe_relative(context, ns[agrees])
        _note_oddities(context, ns[agrees], is_timed, agrees)
        self._note_delays(context, int(np.count_nonzero(~is_timed)))

    def _are_seconds(self, ns: IntArray) -> bool:
        """Whether relative times are guidellm's seconds; remembered for the description."""
        is_small = int(ns.max(initial=0)) < _MAX_FRACTION_S * NS_PER_MS
        self._has_seconds = (
            is_small
            and self.has_fractions
            and len(ns) >= _ENOUGH_ROWS
            and _rate(ns) > _SUSPECT_RATE
        )
        return self._has_seconds

    def _note_delays(self, context: ReadContext, untimed: int) -> None:
        if untimed:
            why = ""
            if self.delays:
                why = (
                    f"; {self.delays:,} of them are turns that start a stated `delay` after the "
                    "turn before ends, which is not recorded"
                )
            context.note("arrival_unknown", f"{untimed:,} rows have no timestamp{why}")

    def _describe_relative(self, context: ReadContext, ns: IntArray) -> None:
        context.clock = "relative"
        if self._has_seconds:
            self._describe_seconds(context, ns)
            return
        context.clock_reason = "timestamp is taken as milliseconds from the start of the trace"
        rate = _rate(ns)
        small = int(ns.max()) < _MAX_FRACTION_S * NS_PER_MS
        if small and (self.has_fractions or rate > _SUSPECT_RATE):
            why = (
                "they have fractions" if self.has_fractions else f"that gives {rate:,.0f} a second"
            )
            context.note(
                "timestamp_unit_assumed",
                f"timestamps are taken as milliseconds, as the format defines them, but {why} and "
                "all are below 1e6: if they are seconds, the load is shown 1 000 times too high "
                "(multiply them by 1 000)",
                severity="warning",
            )
            return
        context.note(
            "timestamp_unit_assumed",
            "timestamps are taken as milliseconds; guidellm writes seconds in the same "
            "columns, which cannot be told apart",
        )

    def _describe_seconds(self, context: ReadContext, ns: IntArray) -> None:
        context.clock_reason = "timestamp is taken as seconds from the start of the trace"
        context.note(
            "timestamp_unit_assumed",
            "timestamps are taken as seconds, as guidellm writes them: they have fractions, and as "
            f"milliseconds they would be {1000 * _rate(ns):,.0f} requests a second; if they are "
            "milliseconds, the load is shown 1 000 times too low (multiply them by 1 000)",
            severity="warning",
        )


def _rate(ns: IntArray) -> float:
    """Requests a second; 0 where all have one time."""
    span_s = int(ns.max() - ns.min()) / NS_PER_S if len(ns) else 0.0
    return len(ns) / span_s if span_s else 0.0


def to_ns(timestamp: float, unit: int) -> int:
    """A timestamp of a unit of `_UNITS` in ns: whole numbers exact, others as they are printed."""
    if isinstance(timestamp, int):
        return timestamp * _SCALES[unit]
    return round(Decimal(repr(timestamp)) * _SCALES[unit])


def fits(timestamp: float) -> bool:
    """Whether a timestamp fits 64 bits in ns, in the unit that its magnitude says."""
    return timestamp < _EPOCH_FROM[0] or to_ns(timestamp, _unit(timestamp)) <= INT64_MAX


def _unit(timestamp: float) -> int:
    return sum(timestamp >= first for first in _EPOCH_FROM)


def _is_epoch(ns: IntArray, units: Units) -> bool:
    """Whether the median timestamp is a date.

    A trace of days in ms reaches the range of seconds; but it spreads from near zero, and dates
    lie close together.
    """
    values = ns / np.asarray(_SCALES, dtype=np.float64)[units]
    median = float(np.median(values))
    if median < _EPOCH_FROM[0]:
        return False
    if median >= _EPOCH_FROM[1]:
        return True
    return bool(np.mean(np.abs(values - median) <= _SAME_ERA * median) >= 0.5)


def _longest_ns(units: Units) -> int:
    """Up to where rows of a relative clock are its own, in ns of the reading as seconds."""
    return INT64_MAX if np.mean(units == _SECONDS) >= 0.5 else _LONGEST_RELATIVE_MS * NS_PER_S


def _describe_epoch(context: ReadContext, ns: IntArray, units: Units) -> None:
    context.clock = "utc"
    counts = np.bincount(units, minlength=len(_UNITS))
    most = int(counts.argmax())
    first = datetime.fromtimestamp(int(ns.min()) // NS_PER_S, tz=UTC)
    context.clock_reason = (
        f"timestamp is in the range of epoch {_UNITS[most]}; the first is "
        f"{first:%Y-%m-%d %H:%M} UTC"
    )
    others = int(counts.sum() - counts[most])
    if others:
        context.note(
            "mixed_timestamp_units",
            f"{others:,} of {len(ns):,} timestamps are in another unit than epoch {_UNITS[most]}; "
            "each is read by its own magnitude",
            severity="warning",
        )


def _note_oddities(
    context: ReadContext, ns: IntArray, is_timed: BoolArray, agrees: BoolArray
) -> None:
    earlier = int(np.count_nonzero(ns < np.maximum.accumulate(ns)))
    if earlier:
        context.note(
            "out_of_order",
            f"{earlier} rows are earlier than a row before them; "
            "they are put in order of time, ties in file order",
        )
    disagreeing = int(np.count_nonzero(is_timed & ~agrees))
    if disagreeing:
        context.note(
            DISAGREES_FLAG,
            f"{disagreeing} rows are on another clock than most; their arrival is unknown",
            severity="warning",
        )
