"""Numbers and texts for people: every unit is printed, unknown stays unknown.

Only display happens here: a value is scaled to the unit that a person reads, nothing is computed.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kvtrace.audit.record import Cell
from kvtrace.units import (
    GB,
    GIB,
    KB,
    KIB,
    MB,
    MIB,
    NS_PER_S,
    S_PER_HOUR,
    TB,
    TIB,
    format_bytes,
    format_rate,
    format_seconds,
    format_traffic,
)

NBSP: Final = "\u00a0"
MAX_TEXT: Final = 400
"""Longest text from a log or a path that a report shows whole."""
_TRAFFIC_WORDS: Final = (
    "moved",
    "read",
    "written",
    "traffic",
    "requested",
    "pulled",
    "loaded",
    "net_negative",
)
_BYTES: Final = ("bytes", "B")
_RATES: Final = ("bytes/s", "B/s", "bytes_per_s")
_RESIDUE: Final = 1e-9
"""What a sum of floats leaves where the exact result is zero."""
_INSTANT_NAMES: Final = ("_at_ns", "start_ns")
_FIRST_EPOCH_NS: Final = 10**17
"""Of 1973; times from a log's first record are smaller."""
_COUNT_UNITS: Final = {
    "token": "tokens",
    "tokens": "tokens",
    "block": "blocks",
    "blocks": "blocks",
    "request": "requests",
    "requests": "requests",
    "hits": "hits",
    "links": "links",
    "instances": "instances",
    "samples": "samples",
    "conversations": "conversations",
    "turns": "turns",
    "slices": "slices",
    "days": "days",
    "rows": "rows",
    "files": "files",
    "count": "",
    "rank": "",
    "id": "",
    "key": "",
    "": "",
}


def safe_text(value: str, *, limit: int = MAX_TEXT) -> str:
    """`value` with control, direction-changing and lone surrogate characters made visible.

    A log can hold terminal escapes, right-to-left overrides and undecodable bytes; none of them may
    act on a terminal or a page. Escaping markup is left to the template engine.
    """
    if len(value) <= limit and value.replace(NBSP, " ").isprintable():
        return value
    shown = "".join(_visible(character) for character in value[: limit + 1])
    return shown if len(value) <= limit else f"{shown[:limit]}…"


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\n\t":
        return " "
    if category in ("Cc", "Cs", "Zl", "Zp", "Cf") and character not in "\u200c\u200d":
        return f"\\u{ord(character):04x}"
    return character


def format_ratio(value: float) -> str:
    """A share of 0..1 as percent: `37.36 %`; small shares keep three digits."""
    percent = value * 100
    if percent != 0 and abs(percent) < 0.1:
        return f"{percent:.2g}{NBSP}%"
    return f"{percent:,.2f}".removesuffix(".00") + f"{NBSP}%"


def format_count(value: float) -> str:
    """A count or plain number with thousands separators: `144,793,823`."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) < _RESIDUE:
        return "0"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def format_usd(value: float) -> str:
    """Money: `$1,234`, `$0.0123`."""
    sign = "-" if value < 0 else ""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{sign}${magnitude:,.0f}"
    if magnitude == 0:
        return "$0"
    if magnitude >= 0.1:
        return f"{sign}${magnitude:,.2f}"
    return f"{sign}${magnitude:.3g}"


def _format_time(seconds: float) -> str:
    """A duration; below a microsecond ms would need an exponent."""
    if 0 < abs(seconds) < 1e-6:
        return f"{seconds * NS_PER_S:,.3g} ns"
    return format_seconds(seconds)


def _format_times(value: float) -> str:
    """A ratio of times: `0.10 ×`, two decimals unless these would hide it."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}{NBSP}×"
    if magnitude >= 0.095 or magnitude == 0:
        return f"{value:.{2 if magnitude < 10 else 1}f}{NBSP}×"
    return f"{value:.2g}{NBSP}×"


def _scaled(unit: str) -> Callable[[float], str] | None:
    return {
        "s": _format_time,
        "ms": lambda value: _format_time(value / 1_000),
        "us": lambda value: _format_time(value / 1_000_000),
        "ns": lambda value: _format_time(value / NS_PER_S),
        "ratio": format_ratio,
        "0..1": format_ratio,
        "times": _format_times,
        "correlation": lambda value: f"{value:.2f}",
        "percent": lambda value: f"{value:,.2f}{NBSP}%",
        "%": lambda value: f"{value:,.2f}{NBSP}%",
        "bytes/s": format_rate,
        "B/s": format_rate,
        "bytes_per_s": format_rate,
        "bytes/day": lambda value: f"{format_traffic(value)}/day",
    }.get(unit)


def is_count(unit: str) -> bool:
    """Whether a unit is a plain count of things, which a table's head can carry."""
    return unit.lower() in _COUNT_UNITS


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit that a whole column, axis or interval is printed in."""

    unit: str
    size: float
    """How much of the stored unit it is."""


_SECONDS_IN: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIMES: Final = (("h", 3 * S_PER_HOUR, S_PER_HOUR), ("s", 10.0, 1.0), ("ms", 1e-3, 1e-3))
_HELD: Final = (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1))
_MOVED: Final = (("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB), ("B", 1))


def pick_scale(unit: str, values: Iterable[Cell], *, name: str = "") -> Scale | None:
    """The unit for all of `values`, by the largest; None where units need no choice."""
    numbers = [abs(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]
    largest = max(numbers, default=0.0)
    if largest == 0:
        return None
    if unit in _SECONDS_IN and not (unit == "ns" and name.endswith(_INSTANT_NAMES)):
        stored = _SECONDS_IN[unit]
        rows = [(label, size) for label, start, size in _TIMES if largest * stored >= start]
        return Scale(rows[0][0], rows[0][1] / stored) if rows else None
    if unit in _BYTES:
        units = _MOVED if is_traffic(name) else _HELD
        return next((Scale(label, size) for label, size in units if largest >= size), None)
    if unit in _RATES:
        return next((Scale(f"{u}/s", size) for u, size in _MOVED if largest >= size), None)
    return None


def format_in(value: Cell, scale: Scale) -> str | None:
    """`value` in the unit of its column; None when unknown."""
    if value is None or isinstance(value, bool | str) or not math.isfinite(value):
        return format_value(value, "")
    shown = value / scale.size
    return _spaced(f"{_digits(shown)} {scale.unit}")


def _digits(value: float) -> str:
    """Three or four digits, never an exponent."""
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude >= 1_000:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    if magnitude >= 1:
        return f"{value:.2f}"
    places = min(15, 1 - math.floor(math.log10(magnitude)))
    return f"{value:.{max(2, places)}f}"


def format_tick(value: float, scale: Scale) -> str:
    """A round value on an axis: `10 s`."""
    shown = f"{value / scale.size:,.12f}".rstrip("0").rstrip(".")
    return _spaced(f"{shown} {scale.unit}")


def is_traffic(name: str) -> bool:
    """Whether bytes of this name cross a link, rather than being held."""
    return any(word in name for word in _TRAFFIC_WORDS)


def format_value(value: Cell, unit: str, *, name: str = "") -> str | None:
    """`value` in `unit` for a person, the unit included; None when unknown.

    `name` tells moved bytes (GB, powers of ten) from held bytes (GiB, powers of two).
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return _spaced(_format_number(value, unit, name))


def is_instant(value: float, unit: str, name: str) -> bool:
    """Whether a time in ns is a wall-clock instant rather than a duration or a relative time."""
    return unit == "ns" and name.endswith(_INSTANT_NAMES) and value >= _FIRST_EPOCH_NS


def format_instant(value: float) -> str:
    """Epoch nanoseconds as `2025-06-01 12:00:00`, on the clock of the source (UTC or naive)."""
    return f"{datetime.fromtimestamp(int(value) // NS_PER_S, tz=UTC):%Y-%m-%d %H:%M:%S}"


def _format_number(value: float, unit: str, name: str) -> str:
    if is_instant(value, unit, name):
        return format_instant(value)
    scaled = _scaled(unit)
    if scaled is not None:
        return scaled(value)
    if unit in _BYTES:
        return format_traffic(value) if is_traffic(name) else format_bytes(value)
    if unit.lower().startswith("usd"):
        per = unit[3:].strip().replace("_per_", "/").replace("per ", "/")
        return f"{format_usd(value)}{per}"
    if unit.lower() in _COUNT_UNITS:
        return f"{format_count(value)} {_noun(_COUNT_UNITS[unit.lower()], value)}".rstrip()
    if unit == "FLOP/s" and abs(value) >= 1e12:
        return f"{value / 1e12:,.4g} TFLOP/s"
    return f"{format_count(value)} {_noun(safe_text(unit, limit=40), value)}"


def _noun(unit: str, value: float) -> str:
    """One of a thing has no plural: `1 request`, `1 GPU`."""
    is_plural = len(unit) > 3 and unit.isalpha() and unit.endswith("s")
    return unit[:-1] if value == 1 and is_plural else unit


def _spaced(text: str) -> str:
    """Keep a number and its unit on one line, with a real minus."""
    joined = text.replace(" ", NBSP)
    return f"−{joined[1:]}" if joined.startswith("-") else joined


def format_interval(low: Cell, high: Cell, unit: str, *, name: str = "") -> str | None:
    """`low – high` in one unit, or None unless both ends are known; equal ends are one text."""
    if low is None or high is None:
        return None
    scale = pick_scale(unit, (low, high), name=name)
    low_text, high_text = (
        format_in(end, scale) if scale else format_value(end, unit, name=name)
        for end in (low, high)
    )
    if low_text is None or high_text is None:
        return None
    if low_text == high_text:
        return low_text
    return f"{low_text} – {high_text}"


def exact_value(value: Cell) -> str:
    """The value as machines copy it: full precision, empty when unknown."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return safe_text(value) if isinstance(value, str) else repr(value)
