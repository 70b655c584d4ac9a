"""Values of a fleet file: texts with units to SI, ranges, dates and words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Literal

from kvtrace.cost.evidence import number
from kvtrace.cost.fleet.keys import Key, Reads
from kvtrace.units import NS_PER_S, parse_bytes, parse_duration_ns, parse_rate

Value = int | float | bool | str | date


@dataclass(frozen=True, slots=True)
class Stated:
    """One value as a file states it."""

    value: Value
    """Bytes, bytes/s, seconds, a plain number, or what is none."""
    low: float | None
    high: float | None
    standing: Literal["stated", "logs", "unconfirmed"]
    line: int | None

    @property
    def amount(self) -> float:
        """The value as a number; only for keys that are one."""
        return number(self.value)


_PARSERS: Final[Mapping[Reads, tuple[Callable[[str], float], str]]] = {
    "bytes": (parse_bytes, "2TiB"),
    "rate": (parse_rate, "400Gb/s"),
    "duration": (lambda text: parse_duration_ns(text) / NS_PER_S, "250ms"),
}


def read_value(key: Key, raw: object) -> tuple[Value, float | None, float | None]:
    """The value, and its low and high where they are stated.

    Raises:
        ValueError: it is none of what the key takes.
        UsageError: its unit is missing or unknown.
    """
    if key.reads == "switch":
        return _switch(raw), None, None
    if key.reads == "word":
        return _word(key, raw), None, None
    if key.reads == "date":
        return _date(raw), None, None
    if not isinstance(raw, Mapping):
        return _quantity(key, raw), None, None
    unknown = sorted(set(raw) - {"value", "low", "high"})
    if unknown or "value" not in raw:
        raise ValueError("a range is `{ value = …, low = …, high = … }`")
    ends = (_quantity(key, raw[end]) if end in raw else None for end in ("low", "high"))
    low, high = ends
    value = _quantity(key, raw["value"])
    if (low is not None and low > value) or (high is not None and high < value):
        raise ValueError("the value is not between low and high")
    return value, low, high


def _quantity(key: Key, raw: object) -> float | int:
    if key.reads in _PARSERS:
        parse, example = _PARSERS[key.reads]
        if not isinstance(raw, str):
            raise ValueError(f"write it as a string with its unit, such as `{example}`")
        return float(parse(raw))
    value = number(raw)
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    if key.reads == "whole":
        if value < 1 or value != int(value):
            raise ValueError("not a whole number above zero")
        return int(value)
    if value < 0:
        raise ValueError("below zero")
    if key.reads == "share" and value > 1:
        raise ValueError("a ratio, 0 to 1")
    return value


def _switch(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("true or false, without quotes")
    return raw


def _word(key: Key, raw: object) -> str:
    if raw not in key.words:
        import difflib

        close = difflib.get_close_matches(str(raw), key.words, n=1)
        meant = f"; did you mean `{close[0]}`?" if close else ""
        raise ValueError(f"`{raw}` is none of {', '.join(key.words)}{meant}")
    return str(raw)


def _date(raw: object) -> date:
    if isinstance(raw, datetime):
        return raw.date()
    if isinstance(raw, date):
        return raw
    try:
        return date.fromisoformat(str(raw))
    except ValueError:
        raise ValueError(f"`{raw}` is not a date; write it as 2027-06-30") from None
