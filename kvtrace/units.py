"""Units: the only place where powers of ten and two appear.

`GB` is 10^9 bytes, `GiB` is 2^30 bytes, `Gb/s` is 10^9 bits per second. Text is converted once, at
the edge where it enters; ambiguous text (`80G`) is refused with a hint.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.errors import UsageError

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12
S_PER_HOUR: Final = 3600
S_PER_DAY: Final = 86_400
HOURS_PER_MONTH: Final = 730.0
"""Hours in a mean month, 8 760 / 12."""
DAYS_PER_MONTH: Final = 365.0 / 12.0
"""Days in a mean month."""
MONTHS_PER_YEAR: Final = 12

_BYTE_UNITS: Final[dict[str, int]] = {
    "B": 1,
    "kB": KB,
    "KB": KB,
    "MB": MB,
    "GB": GB,
    "TB": TB,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}
_BITS_PER_S: Final[dict[str, int]] = {
    "b/s": 1,
    "bit/s": 1,
    "kb/s": KB,
    "Kb/s": KB,
    "Mb/s": MB,
    "Gb/s": GB,
    "Tb/s": TB,
    "Mbit/s": MB,
    "Gbit/s": GB,
    "Tbit/s": TB,
    "Mbps": MB,
    "Gbps": GB,
    "Tbps": TB,
}
_DURATION_NS: Final[dict[str, int]] = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": S_PER_HOUR * NS_PER_S,
    "d": 24 * S_PER_HOUR * NS_PER_S,
}
_FLOPS: Final[dict[str, int]] = {
    f"{prefix}{unit}": size
    for prefix, size in (("G", GB), ("T", TB), ("P", 10**15))
    for unit in ("FLOPS", "FLOP/s")
}
_NUMBER: Final = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9][0-9_]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""Commas part thousands only: `1,5GB` is refused, for some read it as 1.5."""
_QUANTITY: Final = re.compile(rf"\s*({_NUMBER})\s*([^\s0-9,._]\S*)?\s*")


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UsageError(
            "KVT-U001", f"`{text}` is not {what}", hint=f"write it with its unit, as `{example}`"
        )
    number = float(match.group(1).replace("_", "").replace(",", ""))
    return number, match.group(2) or ""


def parse_bytes(text: str) -> int:
    """Bytes of a text such as `80GiB` or `80GB`.

    Raises:
        UsageError: the unit is missing, unknown or ambiguous (`80G`, `80Gb`).
    """
    number, unit = _split(text, "an amount of bytes", "80GiB")
    if unit not in _BYTE_UNITS:
        hint = f"`{number:g}GiB` is 2^30 bytes each, `{number:g}GB` is 10^9 bytes each"
        raise UsageError("KVT-U002", f"`{text}` has no clear unit of bytes", hint=hint)
    return round(number * _BYTE_UNITS[unit])


def parse_rate(text: str) -> float:
    """Bytes per second of a text such as `400Gb/s` (bits) or `50GB/s` (bytes).

    Raises:
        UsageError: the unit is missing, unknown or ambiguous.
    """
    number, unit = _split(text, "a rate", "400Gb/s")
    if unit in _BITS_PER_S:
        return number * _BITS_PER_S[unit] / 8
    if unit.endswith("/s") and unit[:-2] in _BYTE_UNITS:
        return number * _BYTE_UNITS[unit[:-2]]
    hint = f"`{number:g}Gb/s` is gigabits per second, `{number:g}GB/s` is gigabytes per second"
    raise UsageError("KVT-U003", f"`{text}` has no clear unit of a rate", hint=hint)


def parse_flops(text: str) -> float:
    """FLOP/s of a text such as `989TFLOPS` or `1.98PFLOP/s`.

    Raises:
        UsageError: the unit is missing or unknown.
    """
    number, unit = _split(text, "a rate of arithmetic", "989TFLOPS")
    if unit not in _FLOPS:
        raise UsageError(
            "KVT-U005",
            f"`{text}` has no clear unit of arithmetic",
            hint=f"use one of {', '.join(_FLOPS)}, as `{number:g}TFLOPS`; dense, not sparse",
        )
    return number * _FLOPS[unit]


def parse_duration_ns(text: str) -> int:
    """Nanoseconds of a text such as `250ms`, `3s` or `2h`.

    Raises:
        UsageError: the unit is missing or unknown.
    """
    number, unit = _split(text, "a duration", "250ms")
    if unit not in _DURATION_NS:
        raise UsageError(
            "KVT-U004",
            f"`{text}` has no clear unit of time",
            hint=f"use one of {', '.join(_DURATION_NS)}, as `{number:g}ms`",
        )
    return round(number * _DURATION_NS[unit])


def format_bytes(value: float, *, digits: int = 4) -> str:
    """Capacity for a person, to so many significant digits: `1.5 GiB`."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(value) >= size:
            return f"{value / size:,.{digits}g} {unit}"
    return f"{value:,.0f} B"


def format_traffic(value: float) -> str:
    """Moved bytes for a person: `47.45 TB` (powers of ten)."""
    for unit, size in (("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB)):
        if abs(value) >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:,.0f} B"


def format_rate(bytes_per_s: float) -> str:
    """A rate for a person: `51.2 GB/s` (powers of ten)."""
    return f"{format_traffic(bytes_per_s)}/s"


def format_flops(flops: float) -> str:
    """An amount of arithmetic for a person: `274 TFLOP`."""
    for unit, size in (("EFLOP", 10**18), ("PFLOP", 10**15), ("TFLOP", TB), ("GFLOP", GB)):
        if abs(flops) >= size:
            return f"{flops / size:,.4g} {unit}"
    return f"{flops:,.0f} FLOP"


def format_seconds(seconds: float) -> str:
    """A duration for a person: ms below 10 s, then s, min, h."""
    magnitude = abs(seconds)
    if magnitude < 10:
        return f"{seconds * 1000:,.3g} ms" if magnitude < 1 else f"{seconds * 1000:,.0f} ms"
    if magnitude < 600:
        return f"{seconds:,.1f} s"
    if magnitude < 3 * S_PER_HOUR:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / S_PER_HOUR:,.1f} h"


def counted(number: int, noun: str) -> str:
    """`1 request`, `1,448 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_quantity(value: float, unit: str) -> str:
    """A constant for a person, by its unit: rates in powers of ten, capacity in powers of two."""
    if unit == "B/s":
        return format_rate(value)
    if unit == "B":
        return format_bytes(value)
    if unit == "s":
        return format_short_seconds(value)
    if unit == "FLOP/s":
        return f"{value / TB:,.4g} TFLOPS"
    if unit == "ratio":
        return f"{value:.4g}"
    return f"{value:,.6g} {unit}"


def format_short_seconds(seconds: float) -> str:
    """A duration for a person, down to nanoseconds: `3.2 us`."""
    if seconds == 0 or abs(seconds) >= 1 / 1000:
        return format_seconds(seconds)
    if abs(seconds) >= 1 / MB:
        return f"{seconds * MB:,.3g} us"
    return f"{seconds * GB:,.3g} ns"
