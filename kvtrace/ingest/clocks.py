"""Time stamps of traces and logs as int64 nanoseconds, with no float on the way.

A log line may carry up to three stamps: an instant with a zone (put in front by a container or a
syslog), a full date without a zone, or a date without a year. `FileClock` collects them while a
file is read and decides at its end, when the whole file is known, which of them makes the clock.
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
from kvtrace.ingest.contract import LineTime, ReadContext
from kvtrace.units import NS_PER_S, NS_PER_US

INT64_MAX: Final = (1 << 63) - 1
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_S_PER_DAY: Final = 86_400
_FIRST_YEAR: Final = 1678
_LAST_YEAR: Final = 2261
"""First and last whole years whose nanoseconds from the epoch fit 64 bits."""
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
    """Nanoseconds from the epoch to a date of the Gregorian calendar; None if there is no such.

    Years whose nanoseconds do not fit 64 bits are none either.
    """
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        return None
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
    offset_of = _zone_offsets(tz)
    return lambda ns: ns - offset_of(ns)[0]


def _zone_offsets(tz: str) -> Callable[[int], tuple[int, bool]]:
    """A function from a local time to what it is ahead of UTC, and whether its hour comes twice.

    Raises:
        UsageError: there is no such zone.
    """
    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as cause:
        hint = "use an IANA name, as `--tz Europe/Berlin` or `--tz UTC`"
        raise UsageError("KVT-I020", f"`{tz}` is not a known time zone", hint=hint) from cause
    quarter = 900 * NS_PER_S
    offsets: dict[int, tuple[int, bool]] = {}

    def offset_of(ns: int) -> tuple[int, bool]:
        bucket = ns // quarter
        found = offsets.get(bucket)
        if found is None:
            local = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=bucket * 900)
            first, second = (_offset_ns(local.replace(fold=fold)) for fold in (0, 1))
            found = offsets[bucket] = first, second < first
        return found

    return offset_of


def _offset_ns(local: datetime) -> int:
    return round((local.utcoffset() or timedelta()).total_seconds()) * NS_PER_S


NO_TIME: Final = LineTime(None, None, None, 0, 0)
"""The stamps of a line that has none."""
_MAX_ZONE_ANCHORS: Final = 256
_ZONE_STEP_NS: Final = 900 * NS_PER_S
_MAX_ZONE_NS: Final = 15 * 3600 * NS_PER_S


class ClockUse:
    """Which stamps the rows of one source have: they decide its clock."""

    def __init__(self) -> None:
        self.bearing = 0
        self.has_only_instants = True
        self.has_yearless = False
        self._last: LineTime | None = None

    def count(self, time: LineTime) -> None:
        """Say that a row will ask for this time."""
        self.bearing += 1
        if time is not self._last:
            self._last = time
            if time.instant_ns is None:
                self.has_only_instants = False
            if time.month_day is not None:
                self.has_yearless = True


class FileClock:
    """The clock of one text log: one stamp a line goes in, a resolver comes out at the end."""

    def __init__(self, context: ReadContext | None = None) -> None:
        """`context` says zone and year as far as the user does, for `elapsed_ns`."""
        self._context = context
        tz = None if context is None else context.tz
        self._offset_of = None if tz is None else _zone_offsets(tz)
        self._year_evidence: tuple[int, int, int] | None = None
        self._year = _LEAP_YEAR
        self._month: int | None = None
        self._wraps = 0
        self._anchors: list[tuple[int, int, str]] = []  # (year, wraps, whence)
        self._anchored: tuple[int, int | None, int] | None = None
        self._last_month_day = 0
        self._has_leap_day: set[int] = set()
        self._zone_anchors: list[tuple[LineTime, int]] = []
        self._instant_step = self._naive_step = self._yearless_step = NS_PER_S

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
            if time_ns % NS_PER_S:
                self._yearless_step = NS_PER_US  # glog prints microseconds
            if month_day == 229:
                self._has_leap_day.add(self._wraps)
        wraps = self._wraps
        if instant is not None:
            self._instant_step = min(self._instant_step, instant.resolution_ns)
        if naive is not None:
            self._naive_step = min(self._naive_step, naive.resolution_ns)
        if instant is not None:
            self._anchor(instant.ns, "the container's time stamps")
        elif naive is not None:
            self._anchor(naive.ns, "lines of the file that carry a full date")
        time = LineTime(
            instant.ns if instant else None,
            naive.ns if naive else None,
            month_day,
            time_ns,
            wraps,
        )
        if instant is not None and (naive is not None or month_day is not None):
            self._add_zone_anchor(time, instant.ns)  # other lines may lack the wrapper
        return time

    def elapsed_ns(self, start: LineTime, end: LineTime) -> int | None:
        """Nanoseconds between two lines on the best stamps that both have; None if none.

        With a zone, clocks that are put forward or back between the lines do not count; None where
        one of them is in the hour that comes twice.
        """
        if start.instant_ns is not None and end.instant_ns is not None:
            return end.instant_ns - start.instant_ns
        if start.naive_ns is not None and end.naive_ns is not None:
            return self._local_gap_ns(start.naive_ns, end.naive_ns)
        if start.month_day is None or end.month_day is None:
            return None
        year = self._year_so_far()
        first, last = _yearless_ns(start, year), _yearless_ns(end, year)
        return None if first is None or last is None else self._local_gap_ns(first, last)

    def _year_so_far(self) -> int:
        """Base year as the lines up to now give it; without a zone any year will do."""
        if self._anchors:
            return self._anchors[-1][0] - self._anchors[-1][1]
        if self._offset_of is None or self._context is None:
            return _LEAP_YEAR
        evidence = (self._wraps, self._last_month_day, len(self._zone_anchors))
        if evidence != self._year_evidence:
            self._year_evidence = evidence
            self._year = self._base_year(self._context)[0]
        return self._year

    def _local_gap_ns(self, start_ns: int, end_ns: int) -> int | None:
        if self._offset_of is None:
            return end_ns - start_ns
        first, is_first_twice = self._offset_of(start_ns)
        last, is_last_twice = self._offset_of(end_ns)
        return None if is_first_twice or is_last_twice else end_ns - last - (start_ns - first)

    def anchor_zone(self, naive: LineTime, epoch_ns: int) -> None:
        """A line without zone holds an instant of its own that is (nearly) its stamp."""
        if naive.instant_ns is None:
            self._add_zone_anchor(naive, epoch_ns)

    def _add_zone_anchor(self, local: LineTime, epoch_ns: int) -> None:
        if len(self._zone_anchors) < _MAX_ZONE_ANCHORS:
            self._zone_anchors.append((local, epoch_ns))

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

    def resolver(self, context: ReadContext, use: ClockUse) -> Callable[[LineTime], int | None]:
        """The function from a line's stamps to its time in ns; fills the clock of `context`."""
        if use.bearing == 0:
            context.clock_reason = "no used line carries a time"
            return lambda time: None
        if use.has_only_instants:
            context.clock, context.clock_resolution_ns = "utc", self._instant_step
            context.clock_reason = "the container's time stamps carry a zone"
            return lambda time: time.instant_ns
        base_year, why = self._base_year(context)
        offset_ns = None if context.tz else self._zone_offset_ns(base_year)
        shift = zone_shift(context.tz) if offset_ns is None else lambda ns: ns - offset_ns
        is_evident = bool(self._anchors or self._zone_anchors) or context.year is not None
        if use.has_yearless and not is_evident:
            context.note("year_assumed", f"The log's clock has no year; {why}.")
        zone = _zone_words(context.tz, offset_ns)
        is_placed = context.tz is not None or offset_ns is not None
        context.clock = "utc" if is_placed else "naive"
        context.clock_resolution_ns = self._yearless_step if use.has_yearless else self._naive_step
        context.clock_reason = f"{why}; {zone}" if use.has_yearless else f"full dates; {zone}"
        if not is_placed:
            context.note("naive_clock", "The log's clock has no zone; it is taken as UTC (--tz).")

        def resolve(time: LineTime) -> int | None:
            if time.naive_ns is not None:
                return shift(time.naive_ns)
            if time.month_day is None:
                return time.instant_ns
            ns = _yearless_ns(time, base_year)
            return None if ns is None else shift(ns)

        return resolve

    def _zone_offset_ns(self, base_year: int) -> int | None:
        """What local time is ahead of UTC, if nearly all lines that say it agree."""
        votes: dict[int, int] = {}
        for time, epoch_ns in self._zone_anchors:
            local = time.naive_ns if time.naive_ns is not None else _yearless_ns(time, base_year)
            if local is not None:
                offset = round((local - epoch_ns) / _ZONE_STEP_NS) * _ZONE_STEP_NS
                votes[offset] = votes.get(offset, 0) + 1
        best = max(votes, key=lambda offset: (votes[offset], -abs(offset)), default=None)
        if best is None or abs(best) > _MAX_ZONE_NS or votes[best] < 0.8 * sum(votes.values()):
            return None
        return best

    def _base_year(self, context: ReadContext) -> tuple[int, str]:
        """Year of the lines before the first New Year, and where it comes from."""
        if self._anchors:
            year, wraps, whence = self._anchors[-1]
            return year - wraps, f"year from {whence}"
        if self._zone_anchors:
            time, epoch_ns = self._zone_anchors[-1]
            day = date.fromordinal(epoch_ns // (NS_PER_S * _S_PER_DAY) + _EPOCH_ORDINAL)
            return day.year - time.wraps, "year from lines that carry an epoch time"
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


_LEAP_YEAR: Final = 2024
"""Stands in for a year that is not known yet: every date exists in it."""


def _yearless_ns(time: LineTime, base_year: int) -> int | None:
    """A stamp without year in the year that its wraps make of `base_year`; None: no such date."""
    if time.month_day is None:
        return None
    day_ns = _day_ns(base_year + time.wraps, time.month_day)
    return None if day_ns is None else day_ns + time.time_ns


@functools.lru_cache(maxsize=1024)
def _day_ns(year: int, month_day: int) -> int | None:
    month, day = divmod(month_day, 100)
    return civil_ns(year, month, day, 0)


def _zone_words(tz: str | None, offset_ns: int | None) -> str:
    if tz:
        return f"zone from --tz {tz}"
    if offset_ns is None:
        return "no zone: taken as UTC"
    minutes = round(offset_ns / (60 * NS_PER_S))
    sign = "-" if minutes < 0 else "+"
    hours = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    return f"zone {hours} from lines that carry an epoch time"
