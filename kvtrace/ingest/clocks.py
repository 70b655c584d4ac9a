"""Time stamps of traces and logs as int64 nanoseconds, with no float on the way.

A log line may carry up to three stamps: an instant with a zone (put in front by a container or a
syslog), a full date without a zone, or a date without a year. `LogClock` collects them while a file
is read and decides at its end, when the whole file is known, which of them makes the clock.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kvtrace.errors import UsageError
from kvtrace.ingest.contract import ReadContext
from kvtrace.units import NS_PER_S

INT64_MAX: Final = (1 << 63) - 1
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_S_PER_DAY: Final = 86_400
_SECOND = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_SECOND_CHARS: Final = len("2024-05-12T00:00:00")
_ISO_REST = re.compile(r"(?:[.,](\d{1,12}))? ?(?:([Zz])|([+-])(\d\d):?(\d\d)?)?")


class IsoTime(NamedTuple):
    """A parsed date and time."""

    ns: int
    """Since the epoch; of a text without a zone, as if that were UTC."""
    is_zoned: bool
    resolution_ns: int
    """The last written digit: 100 for seven fraction digits."""


def civil_ns(year: int, month: int, day: int, second_of_day: int) -> int | None:
    """Nanoseconds from the epoch to a date of the Gregorian calendar; None if there is no such."""
    try:
        days = date(year, month, day).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        return None
    return (days * _S_PER_DAY + second_of_day) * NS_PER_S


def parse_iso(text: str) -> IsoTime | None:
    """The time of `2024-05-12 00:00:01.5+02:00` and its kin; None if it is anything else.

    `T` or a blank between date and time, point or comma before up to nine digits of fraction
    (further ones are dropped), then nothing, `Z`, `+02`, `+0200` or `+02:00`.
    """
    match = _ISO_REST.fullmatch(text, _SECOND_CHARS)
    ns = _second_ns(text[:_SECOND_CHARS])
    if match is None or ns is None:
        return None
    fraction, zulu, sign, off_hour, off_minute = match.groups()
    resolution = NS_PER_S
    if fraction is not None:
        digits = fraction[:9]
        resolution = int(10 ** (9 - len(digits)))
        ns += int(digits) * resolution
    if sign is not None:
        shift = (int(off_hour) * 3600 + int(off_minute or 0) * 60) * NS_PER_S
        ns += shift if sign == "-" else -shift
    return IsoTime(ns, zulu is not None or sign is not None, resolution)


@functools.lru_cache(maxsize=1024)
def _second_ns(text: str) -> int | None:
    """The date and time up to the second, as UTC; many lines of a log share one."""
    match = _SECOND.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups())
    if hour > 23 or minute > 59 or second > 60:
        return None
    return civil_ns(year, month, day, hour * 3600 + minute * 60 + second)


def seconds_to_ns(seconds: Decimal) -> int | None:
    """Nanoseconds of decimal seconds, exact to the last one; None if not finite or past int64."""
    if not seconds.is_finite() or seconds.adjusted() > 9:
        return None
    ns = int((seconds * NS_PER_S).to_integral_value())
    return ns if abs(ns) <= INT64_MAX else None


def seconds_resolution_ns(seconds: Decimal) -> int:
    """What the last written digit of decimal seconds is worth, between 1 ns and 1 s."""
    exponent = seconds.as_tuple().exponent
    digits = min(max(-exponent, 0), 9) if isinstance(exponent, int) else 0
    return int(10 ** (9 - digits))


def zone_shift(tz: str | None) -> Callable[[int], int]:
    """A function from a local time without zone to UTC, both in ns; the identity without `tz`.

    An hour that occurs twice is taken as its first; an hour that does not occur, as standard time.

    Raises:
        UsageError: there is no such zone.
    """
    if tz is None:
        return lambda ns: ns
    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as cause:
        hint = "use an IANA name, as `--tz Europe/Berlin` or `--tz UTC`"
        raise UsageError("KVT-I020", f"`{tz}` is not a known time zone", hint=hint) from cause
    quarter = 900 * NS_PER_S
    offsets: dict[int, int] = {}

    def shift(ns: int) -> int:
        bucket = ns // quarter
        offset = offsets.get(bucket)
        if offset is None:
            local = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=bucket * 900)
            offset = round((local.utcoffset() or timedelta()).total_seconds()) * NS_PER_S
            offsets[bucket] = offset
        return ns - offset

    return shift


class LineTime(NamedTuple):
    """The stamps of one log line; resolved to one clock when the file has been read."""

    instant_ns: int | None
    """UTC, from an outer layer."""
    naive_ns: int | None
    """Full date without a zone."""
    month_day: int | None
    """Month × 100 + day of a date without a year."""
    time_ns: int
    """Since midnight, with `month_day`."""
    wraps: int
    """New Years passed since the first stamped line of the file."""


class LogClock:
    """The clock of one text log: one stamp a line goes in, a resolver comes out at the end."""

    def __init__(self) -> None:
        self._month: int | None = None
        self._wraps = 0
        self._anchors: list[tuple[int, int, str]] = []  # (year, wraps, whence)
        self._anchored: tuple[int, int | None, int] | None = None
        self._last_month_day = 0
        self._has_leap_day: set[int] = set()
        self._bearing = 0
        self._instants = 0
        self._naives = 0
        self._yearless = 0
        self._resolution = NS_PER_S

    def observe(
        self,
        *,
        month_day: int | None = None,
        time_ns: int = 0,
        instant: IsoTime | None = None,
        naive: IsoTime | None = None,
    ) -> LineTime:
        """The stamps of the next line that has any, in file order."""
        if month_day is not None:
            self._step(month_day // 100)
            self._last_month_day = month_day
            if month_day == 229:
                self._has_leap_day.add(self._wraps)
        wraps = self._wraps
        if instant is not None:
            self._anchor(instant.ns, "the container's time stamps")
        elif naive is not None:
            self._anchor(naive.ns, "lines of the file that carry a full date")
        return LineTime(
            instant.ns if instant else None,
            naive.ns if naive else None,
            month_day,
            time_ns,
            wraps,
        )

    def count(self, time: LineTime, *, resolution_ns: int = NS_PER_S) -> None:
        """Say that a row will ask for this time: it takes part in choosing the clock."""
        self._bearing += 1
        self._instants += time.instant_ns is not None
        self._naives += time.naive_ns is not None
        self._yearless += time.month_day is not None
        self._resolution = min(self._resolution, resolution_ns)

    def _step(self, month: int) -> None:
        if self._month is not None and month - self._month < -6:
            self._wraps += 1
        elif self._month is not None and month - self._month > 6:
            self._wraps -= 1  # a line of the old year that came late
        self._month = month

    def _anchor(self, ns: int, whence: str) -> None:
        ordinal = ns // (NS_PER_S * _S_PER_DAY)
        if (ordinal, self._month, self._wraps) == self._anchored:
            return  # the same day as on the line before: nothing is new
        day = date.fromordinal(ordinal + _EPOCH_ORDINAL)
        self._step(day.month)
        if not self._anchors or self._anchors[-1][:2] != (day.year, self._wraps):
            self._anchors.append((day.year, self._wraps, whence))
        self._anchored = (ordinal, self._month, self._wraps)

    def resolver(self, context: ReadContext) -> Callable[[LineTime], int | None]:
        """The function from a line's stamps to its time in ns; fills the clock of `context`."""
        if self._bearing == 0:
            context.clock_reason = "no used line carries a time"
            return lambda time: None
        if self._instants == self._bearing:
            context.clock, context.clock_resolution_ns = "utc", self._resolution
            context.clock_reason = "the container's time stamps carry a zone"
            return lambda time: time.instant_ns
        shift = zone_shift(context.tz)
        base_year, why = self._base_year(context)
        if self._yearless and not self._anchors:
            context.note("year_assumed", f"The log's clock has no year; {why}.")
        zone = f"zone from --tz {context.tz}" if context.tz else "no zone: taken as UTC"
        context.clock = "utc" if context.tz else "naive"
        context.clock_resolution_ns = NS_PER_S if self._yearless else self._resolution
        context.clock_reason = f"{why}; {zone}" if self._yearless else f"full dates; {zone}"
        if context.tz is None:
            context.note("naive_clock", "The log's clock has no zone; it is taken as UTC (--tz).")

        def resolve(time: LineTime) -> int | None:
            if time.month_day is not None:
                month, day = divmod(time.month_day, 100)
                ns = civil_ns(base_year + time.wraps, month, day, 0)
                return None if ns is None else shift(ns + time.time_ns)
            return None if time.naive_ns is None else shift(time.naive_ns)

        return resolve

    def _base_year(self, context: ReadContext) -> tuple[int, str]:
        """Year of the lines before the first New Year, and where it comes from."""
        if self._anchors:
            year, wraps, whence = self._anchors[-1]
            return year - wraps, f"year from {whence}"
        if context.year is not None:
            return context.year - self._wraps, f"year {context.year} of the last line from --year"
        modified = datetime.fromtimestamp(context.modified_at_ns // NS_PER_S, tz=UTC)
        base = modified.year - self._wraps
        tomorrow = modified + timedelta(days=1)
        if self._last_month_day > tomorrow.month * 100 + tomorrow.day and (
            tomorrow.year == modified.year
        ):
            base -= 1  # the last line cannot be younger than the file
        for _ in range(8):
            if all(civil_ns(base + wraps, 2, 29, 0) is not None for wraps in self._has_leap_day):
                break
            base -= 1
        return base, f"year {base + self._wraps} of the last line from the file's modification time"
