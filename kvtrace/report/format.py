"""Numbers and texts for people: every unit is printed, unknown stays unknown.

Only display happens here: a value is scaled to the unit that a person reads, nothing is computed.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from kvtrace.audit.record import Cell
from kvtrace.units import NS_PER_S, format_bytes, format_rate, format_seconds, format_traffic

NBSP: Final = "\u00a0"
MAX_TEXT: Final = 400
"""Longest text from a log or a path that a report shows whole."""
_TRAFFIC_WORDS: Final = ("moved", "read", "written", "traffic", "requested", "pulled", "loaded")
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
    if magnitude >= 1:
        return f"{sign}${magnitude:,.2f}"
    return f"{sign}${magnitude:.3g}"


def _format_time(seconds: float) -> str:
    """A duration; below a microsecond ms would need an exponent."""
    if 0 < abs(seconds) < 1e-6:
        return f"{seconds * NS_PER_S:,.3g} ns"
    return format_seconds(seconds)


def _scaled(unit: str) -> Callable[[float], str] | None:
    return {
        "s": _format_time,
        "ms": lambda value: _format_time(value / 1_000),
        "us": lambda value: _format_time(value / 1_000_000),
        "ns": lambda value: _format_time(value / NS_PER_S),
        "ratio": format_ratio,
        "0..1": format_ratio,
        "times": lambda value: f"{value:,.3g}{NBSP}×",
        "percent": lambda value: f"{value:,.2f}{NBSP}%",
        "%": lambda value: f"{value:,.2f}{NBSP}%",
        "bytes/s": format_rate,
        "B/s": format_rate,
        "bytes_per_s": format_rate,
    }.get(unit)


def is_count(unit: str) -> bool:
    """Whether a unit is a plain count of things, which a table's head can carry."""
    return unit.lower() in _COUNT_UNITS


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
    if unit in ("bytes", "B"):
        is_traffic = any(word in name for word in _TRAFFIC_WORDS)
        return format_traffic(value) if is_traffic else format_bytes(value)
    if unit.lower().startswith("usd"):
        per = unit[3:].strip().replace("_per_", "/").replace("per ", "/")
        return f"{format_usd(value)}{per}"
    if unit.lower() in _COUNT_UNITS:
        noun = _COUNT_UNITS[unit.lower()]
        return f"{format_count(value)} {noun}".rstrip()
    if unit == "FLOP/s" and abs(value) >= 1e12:
        return f"{value / 1e12:,.4g} TFLOP/s"
    return f"{format_count(value)} {safe_text(unit, limit=40)}"


def _spaced(text: str) -> str:
    """Keep a number and its unit on one line, with a real minus."""
    joined = text.replace(" ", NBSP)
    return f"−{joined[1:]}" if joined.startswith("-") else joined


def format_interval(low: Cell, high: Cell, unit: str, *, name: str = "") -> str | None:
    """`low – high`, or None unless both ends are known."""
    low_text = format_value(low, unit, name=name)
    high_text = format_value(high, unit, name=name)
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
