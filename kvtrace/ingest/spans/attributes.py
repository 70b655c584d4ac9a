"""Attributes of one span as texts, counts and times; odd ones are unknown and flagged."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec

from kvtrace.ingest.clocks import seconds_to_ns
from kvtrace.ingest.usage import OTEL_KEYS, TokenUsage, parsed_count, read_attributes
from kvtrace.ingest.values.limits import MAX_COUNT

_MAX_DIGITS: Final = 40
_MAX_ADJUSTED: Final = 16


class Attributes:
    """The attributes of one span by key, and whether one of those asked for was unusable."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self.is_odd = False

    def has_any(self, *keys: str) -> bool:
        """Whether one of these is there, whatever its value."""
        return any(key in self._values for key in keys)

    def text(self, *keys: str) -> str | None:
        """The first of these that is a text with anything in it."""
        found = (self._values.get(key) for key in keys)
        return next((value for value in found if isinstance(value, str) and value), None)

    def count(self, *keys: str) -> int | None:
        """The count of the first key that is there."""
        number = self._number(*keys)
        if number is None:
            return None
        if number == number.to_integral_value() and 0 <= number <= MAX_COUNT:
            return int(number)
        self.is_odd = True
        return None

    def seconds_ns(self, *keys: str) -> int | None:
        """Nanoseconds of the first key that is there; a negative time is unknown."""
        number = self._number(*keys)
        ns = None if number is None else seconds_to_ns(number)
        if ns is not None and ns >= 0:
            return ns
        self.is_odd = self.is_odd or number is not None
        return None

    def usage(self) -> TokenUsage | None:
        """The token counts; those that are none are unknown."""
        counts: dict[str, object] = {}
        for key in OTEL_KEYS & self._values.keys():
            try:
                counts[key] = parsed_count(key, self._values[key])
            except msgspec.ValidationError:
                self.is_odd = True
        try:
            return read_attributes(counts)
        except msgspec.ValidationError:  # a sum past any count
            self.is_odd = True
            return None

    def _number(self, *keys: str) -> Decimal | None:
        key = next((key for key in keys if self._values.get(key) is not None), None)
        if key is None:
            return None
        number = _decimal(self._values[key])
        self.is_odd = self.is_odd or number is None
        return number


def _decimal(raw: object) -> Decimal | None:
    """The exact number of a JSON number or text of sensible size; None if it is none."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    text = str(raw)
    if len(text) > _MAX_DIGITS or not text.isascii():
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number.adjusted() <= _MAX_ADJUSTED else None
