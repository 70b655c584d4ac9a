"""The clock of a mapped file: its unit as stated or by magnitude, checked against the numbers.

Below 10^8 a number is no epoch time; up to 10^11 it is seconds, to 10^14 milliseconds, to 10^17
microseconds, then nanoseconds. What is stated and cannot be is an error with a line to paste.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, Literal

import msgspec

from kvtrace.errors import Location, UsageError
from kvtrace.ingest.clocks import parse_iso
from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.mapping.parse import unit_in_name
from kvtrace.ingest.mapping.spec import POWERS, UNIT_WORDS, FieldRef, TimeSpec, TimeUnit
from kvtrace.ingest.values.instants import (
    NOT_AN_EPOCH_FLAG,
    Instants,
    epoch_power,
    parse_web_log_time,
)
from kvtrace.ingest.values.jsonfields import instant_ns
from kvtrace.ingest.values.rawvalues import decimal_of

_EARLIEST_S: Final = 946_684_800
"""2000-01-01: no log of a language model is older."""
_LATEST_S: Final = 4_102_444_800
"""2100-01-01."""
_LIKELY_S: Final = (1_420_070_400, 2_051_222_400)
"""2015 to 2034: numbers that are such dates in another unit than the stated one are no accident."""
_NEAR_S: Final = 86_400
"""How far from the dates seen so far a number in another unit may be to be read as a date."""
OTHER_UNIT_FLAG: Final = "time_in_another_unit"
_UNITS: Final[dict[int, TimeUnit]] = {0: "s", -3: "ms", -6: "us", -9: "ns"}


@dataclass(frozen=True, slots=True)
class ClockChoice:
    """What the times of a file are."""

    kind: Literal["dates", "epoch", "counted"]
    """dates: ISO dates, or epoch numbers of a unit by magnitude; epoch: numbers of a stated unit;
    counted: numbers from a start that nobody knows."""
    power: int = 0
    """Of ten, from the unit to seconds; of epoch and counted."""
    why: str = ""
    is_assumed: bool = False
    seen_s: tuple[Decimal, Decimal] | None = None
    """The first and the last of the first dates in the stated unit, in seconds; of epoch."""


def choose_clock(spec: TimeSpec, values: Sequence[str], *, mapping: str, path: str) -> ClockChoice:
    """What the times of a file are, by what was stated and by its first values.

    Raises:
        UsageError: what was stated contradicts the values, or the values do not tell the unit.
    """
    judge = _Judge(spec, mapping, path)
    numbers = sorted(number for text in values if (number := as_number(text)) is not None)
    dates = sum(is_date(text) for text in values)
    if spec.unit == "iso":
        if numbers and not dates:
            raise judge.fault("the values are numbers, not dates", 'unit = "auto"')
        return ClockChoice("dates", why="dates")
    if dates > len(numbers):
        if spec.unit != "auto":
            raise judge.fault("the values are dates, not numbers", 'unit = "iso"')
        return ClockChoice("dates", why="dates")
    middle = numbers[len(numbers) // 2] if numbers else None
    if spec.unit == "auto":
        return _by_magnitude(spec, middle, judge)
    choice = _of_unit(spec, POWERS[spec.unit], middle, judge)
    return _with_seen(choice, numbers) if choice.kind == "epoch" else choice


def _with_seen(choice: ClockChoice, numbers: Sequence[Decimal]) -> ClockChoice:
    dates = [one.scaleb(choice.power) for one in numbers if _is_epoch(one, choice.power)]
    return replace(choice, seen_s=(min(dates), max(dates)) if dates else None)


@dataclass(frozen=True, slots=True)
class _Judge:
    spec: TimeSpec
    mapping: str
    path: str

    def fault(self, cause: str, paste: str) -> UsageError:
        spec = self.spec
        return UsageError(
            "KVT-U033",
            f"the time `{spec.ref.said}` of {self.path} cannot be read as the mapping says",
            where=Location(self.mapping),
            cause=f'`time.unit` is "{spec.unit}", but {cause}'
            if spec.unit != "auto"
            else f"`time.unit` is left to the data, but {cause}",
            hint=f"write `{paste}` under `[time]`",
        )


def _by_magnitude(spec: TimeSpec, middle: Decimal | None, judge: _Judge) -> ClockChoice:
    power = None if middle is None else epoch_power(middle)
    is_counted = spec.clock in ("relative", "monotonic")
    if middle is not None and power is not None and not is_counted and _is_date(middle, power):
        words = f"epoch {UNIT_WORDS[_UNITS[power]]}, by their magnitude"
        return ClockChoice("dates", why=words, is_assumed=True)
    if middle is None and not is_counted:
        return ClockChoice("dates", why="by their magnitude", is_assumed=True)
    named = unit_in_name(spec.ref.keys[-1])
    if named is None:
        raise judge.fault(
            "the values count from some start, so their magnitude does not tell the unit",
            'unit = "s"',
        )
    return ClockChoice(
        "counted",
        POWERS[named],
        why=f"{UNIT_WORDS[named]} from a start, by the name of the field",
        is_assumed=True,
    )


def _of_unit(spec: TimeSpec, power: int, middle: Decimal | None, judge: _Judge) -> ClockChoice:
    words = UNIT_WORDS[spec.unit]
    counted = ClockChoice("counted", power, why=f"{words} from a start")
    epoch = ClockChoice("epoch", power, why=f"epoch {words}")
    if spec.clock != "auto":
        return epoch if spec.clock == "utc" else counted
    if middle is None or _is_date(middle, power):
        return epoch
    other = epoch_power(middle)
    if other is not None and other != power and _is_likely(middle, other):
        unit = _UNITS[other]
        raise judge.fault(f"the values are epoch {UNIT_WORDS[unit]}", f'unit = "{unit}"')
    return counted


def _is_date(number: Decimal, power: int) -> bool:
    return _EARLIEST_S <= number.scaleb(power) < _LATEST_S


def _is_likely(number: Decimal, power: int) -> bool:
    return _LIKELY_S[0] <= number.scaleb(power) < _LIKELY_S[1]


def as_number(text: str) -> Decimal | None:
    """The number that a text is; None if it is none, or far from any time."""
    try:
        number = decimal_of("time", text)
    except msgspec.ValidationError:
        return None
    return number if number.adjusted() <= 24 else None


def is_date(text: str) -> bool:
    """Whether a text is a date and time in a form that is read."""
    return (parse_iso(text) or parse_web_log_time(text)) is not None


class MappedClock:
    """Turns the texts of one time field into nanoseconds."""

    def __init__(self, ref: FieldRef, choice: ClockChoice, context: ReadContext) -> None:
        self._name = ref.said
        self._choice = choice
        self._context = context
        self._dates = Instants(context)
        self._seen_s = choice.seen_s

    def ns(self, text: str | None, flags: list[str]) -> int | None:
        """Nanoseconds of an instant; None if it is absent, or no epoch, which is flagged.

        A number that is no date in the stated unit is read in the one unit in which it is, if that
        date is within a day of those seen so far; this is flagged too.

        Raises:
            msgspec.ValidationError: it is no time.
        """
        if text is None:
            return None
        if self._choice.kind == "dates":
            return self._dates.text_ns(self._name, text, flags)
        number, power = decimal_of(self._name, text), self._choice.power
        if self._choice.kind == "epoch":
            read_as = self._power_of(number)
            if read_as != power:
                flag = NOT_AN_EPOCH_FLAG if read_as is None else OTHER_UNIT_FLAG
                flags.extend([] if flag in flags else [flag])
            if read_as is None:
                return None
            power = read_as
        return instant_ns(self._name, number, self._context, power=power)

    def _power_of(self, number: Decimal) -> int | None:
        """The unit of an epoch number as a power of ten; None if it is no date, or a far one."""
        power = self._choice.power
        if _is_epoch(number, power):
            seconds = number.scaleb(power)
            low, high = self._seen_s or (seconds, seconds)
            self._seen_s = min(low, seconds), max(high, seconds)
            return power
        other = epoch_power(number)
        if other is None or self._seen_s is None or not _is_epoch(number, other):
            return None
        low, high = self._seen_s
        return other if low - _NEAR_S <= number.scaleb(other) <= high + _NEAR_S else None

    def describe(self, spec: TimeSpec) -> None:
        """Write down the clock of the file."""
        context, what = self._context, f"`{self._name}`"
        if self._choice.kind == "dates":
            self._dates.finish(what)
        else:
            if self._choice.kind == "epoch":
                context.clock = "utc"
            else:
                context.clock = "monotonic" if spec.clock == "monotonic" else "relative"
            context.clock_reason = f"{what}: {self._choice.why}"
        if self._choice.is_assumed and context.clock != "order":
            context.note(
                "clock_assumed",
                f"The mapping states no unit for {what}: it is read as {self._choice.why}.",
            )


def _is_epoch(number: Decimal, power: int) -> bool:
    """Whether a number of a column of dates can be one: 0 and -1 stand for unknown."""
    return number.adjusted() <= 24 and _EARLIEST_S <= number.scaleb(power) < _LATEST_S
