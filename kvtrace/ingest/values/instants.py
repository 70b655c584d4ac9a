"""Times of gateway records, in whatever form they stand: dates with and without zone, epochs.

The unit of an epoch number is told by its magnitude. A file is on one clock: what its rows turned
out to be is summed up at its end.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import (
    IsoTime,
    civil_ns,
    parse_iso,
    seconds_resolution_ns,
    seconds_to_ns,
    zone_shift,
)
from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.values.rawvalues import decimal_of, raw_text
from kvtrace.units import NS_PER_S

NOT_AN_EPOCH_FLAG: Final = "time_not_an_epoch"
_UNITS: Final = ((8, None), (11, 0), (14, -3), (17, -6), (19, -9))
"""(digits before the point up to which it holds, power of ten from the unit to seconds): below 10^8
is no epoch, below 10^11 seconds, 10^14 milliseconds, 10^17 microseconds, then nanoseconds."""
_UNIT_NAMES: Final = {0: "seconds", -3: "milliseconds", -6: "microseconds", -9: "nanoseconds"}
_WEB_LOG: Final = re.compile(
    r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)"
)
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"


def epoch_power(number: Decimal) -> int | None:
    """Power of ten from the unit of an epoch number to seconds; None if it is no epoch."""
    if not number.is_finite() or number <= 0:
        return None
    digits = number.adjusted() + 1
    return next((power for limit, power in _UNITS if digits <= limit), None)


def parse_web_log_time(text: str) -> IsoTime | None:
    """The time of `02/Mar/2026:08:00:00 +0000`; None if it is anything else."""
    match = _WEB_LOG.fullmatch(text)
    if match is None or not text.isascii() or _MONTHS.find(match[2]) % 3:
        return None
    day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
    if hour > 23 or minute > 59 or second > 60:
        return None
    month = _MONTHS.find(match[2]) // 3 + 1
    ns = civil_ns(year, month, day, hour * 3600 + minute * 60 + second)
    if ns is None:
        return None
    shift = (int(match[8]) * 3600 + int(match[9]) * 60) * NS_PER_S
    return IsoTime(ns + shift if match[7] == "-" else ns - shift, True, NS_PER_S)


class Instants:
    """Turns times into nanoseconds and remembers what they were."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._shift = zone_shift(context.tz)
        self._zoned = self._naive = 0
        self._by_unit: dict[tuple[str, int], int] = {}

    def raw_ns(self, name: str, value: msgspec.Raw, flags: list[str]) -> int | None:
        """Nanoseconds of a JSON value; None if it is absent or no epoch, which is flagged.

        Raises:
            msgspec.ValidationError: it is no time.
        """
        text = raw_text(value)
        return None if text is None else self.text_ns(name, text, flags)

    def text_ns(self, name: str, text: str, flags: list[str]) -> int | None:
        """Nanoseconds of a date or of an epoch number; None if it is no epoch, which is flagged.

        Raises:
            msgspec.ValidationError: it is no time.
        """
        written = parse_iso(text) or parse_web_log_time(text)
        if written is None:
            return self._number_ns(name, decimal_of(name, text), flags)
        self._refine(written.resolution_ns)
        if written.is_zoned:
            self._zoned += 1
            return written.ns
        self._naive += 1
        return self._shift(written.ns)

    def _number_ns(self, name: str, number: Decimal, flags: list[str]) -> int | None:
        power = epoch_power(number)
        seconds = None if power is None else number.scaleb(power)
        ns = None if seconds is None else seconds_to_ns(seconds)
        if power is None or seconds is None or ns is None:
            if NOT_AN_EPOCH_FLAG not in flags:
                flags.append(NOT_AN_EPOCH_FLAG)
            return None
        self._by_unit[name, power] = self._by_unit.get((name, power), 0) + 1
        self._refine(seconds_resolution_ns(seconds))
        return ns

    def _refine(self, resolution_ns: int) -> None:
        known = self._context.clock_resolution_ns
        if known is None or resolution_ns < known:
            self._context.clock_resolution_ns = resolution_ns

    def finish(self, what: str, *, naive_is_utc_because: str | None = None) -> None:
        """Write down the clock of the file; `what` is the field that gives the arrival."""
        context = self._context
        placed = self._zoned + sum(self._by_unit.values())
        if not placed and not self._naive:
            context.clock_reason = f"no record has a time ({what})"
            return
        context.clock = "utc" if context.tz is not None or not self._naive else "naive"
        context.clock_reason = f"{what}: {self._forms()}"
        if self._naive and context.tz is None:
            whose = naive_is_utc_because or "it is taken as UTC"
            context.note("naive_clock", f"{what} has no zone; {whose} (--tz says otherwise).")
        if self._naive and placed:
            context.note("mixed_zones", f"{self._naive} times have no zone, {placed} have one.")
        self._note_mixed_units()

    def _note_mixed_units(self) -> None:
        for name in sorted({name for name, _ in self._by_unit}):
            units = [
                f"{self._by_unit[name, power]} in {unit}"
                for power, unit in _UNIT_NAMES.items()
                if (name, power) in self._by_unit
            ]
            if len(units) > 1:
                self._context.note(
                    "mixed_epoch_units",
                    f"`{name}` is in several units ({', '.join(units)}); each value is read by its"
                    " own magnitude.",
                    severity="warning",
                )

    def _forms(self) -> str:
        powers = {power for _, power in self._by_unit}
        forms = [f"epoch {unit}" for power, unit in _UNIT_NAMES.items() if power in powers]
        if self._zoned:
            forms.append("dates with a zone")
        if self._naive and self._context.tz is None:
            forms.append("dates without a zone, taken as UTC")
        elif self._naive:
            forms.append(f"dates without a zone, taken as {self._context.tz} from --tz")
        return ", ".join(forms)
