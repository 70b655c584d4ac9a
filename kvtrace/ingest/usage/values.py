"""Counts in decoded JSON: numbers, or their texts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec

from kvtrace.ingest.values.jsonfields import count_of

_ABSENT: Final = ("", "-")
_MAX_DIGITS: Final = 40
_INT64_DIGITS: Final = 19


def count_at(usage: Mapping[str, object], names: Sequence[str]) -> int | None:
    """The first known count under these names; `a/b` is key b of the object a.

    Raises:
        msgspec.ValidationError: it is negative, fractional, too large or no number.
    """
    for name in names:
        outer, inner = _path(name)
        value = usage.get(outer)
        if inner:
            value = value.get(inner) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, dict):
            count = parsed_count(name, value)
            if count is not None:
                return count
    return None


@functools.cache
def _path(name: str) -> tuple[str, str]:
    outer, _, inner = name.partition("/")
    return outer, inner


def parsed_count(name: str, value: object) -> int | None:
    """A count from a JSON value: a whole number or its text; null, empty and `-` are unknown.

    Raises:
        msgspec.ValidationError: negative, fractional, too large or no number.
    """
    if value is None or (isinstance(value, str) and value.strip() in _ABSENT):
        return None
    if isinstance(value, str) and len(value) < _INT64_DIGITS and _is_digits(value):
        return count_of(name, int(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return count_of(name, value)
    try:
        number = _decimal(value)
    except (InvalidOperation, ValueError):
        number = None
    if number is None or not number.is_finite() or abs(number.adjusted()) > _MAX_DIGITS:
        raise msgspec.ValidationError(f"`{name}` is not a count")
    if number != int(number):
        raise msgspec.ValidationError(f"`{name}` is not a whole number")
    return count_of(name, int(number))


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, float):
        return Decimal(repr(value))
    return Decimal(value.strip()) if isinstance(value, str) and value.isascii() else None
