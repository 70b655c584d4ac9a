"""Quantities of predictions, and the unit that a point writes them in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kvtrace.cost.validation.routes import CannotPredictError
from kvtrace.units import GB, GIB, KB, KIB, MB, MIB, NS_PER_MS, NS_PER_S, NS_PER_US, TB, TIB

Dimension = Literal[
    "seconds", "bytes", "bytes_per_s", "tokens_per_s", "ratio", "s_per_token", "s_per_byte", "count"
]
_BYTES: Final = {
    "B": 1, "byte": 1, "bytes": 1, "KB": KB, "kB": KB, "MB": MB, "GB": GB, "TB": TB,
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB,
}  # fmt: skip
_SECONDS: Final = {
    "ns": 1 / NS_PER_S, "us": NS_PER_US / NS_PER_S, "µs": NS_PER_US / NS_PER_S,
    "ms": NS_PER_MS / NS_PER_S, "s": 1.0, "sec": 1.0, "seconds": 1.0, "min": 60.0,
}  # fmt: skip
_BITS: Final = {
    f"{size}{unit}": scale / 8
    for size, scale in (("M", MB), ("G", GB), ("T", TB))
    for unit in ("b/s", "bit/s", "bps")
}
_OTHERS: Final[Mapping[str, tuple[Dimension, float]]] = {
    "tok/s": ("tokens_per_s", 1.0),
    "tokens/s": ("tokens_per_s", 1.0),
    "ktok/s": ("tokens_per_s", float(KB)),
    "Mtok/s": ("tokens_per_s", float(MB)),
    "tps": ("tokens_per_s", 1.0),
    "ratio": ("ratio", 1.0),
    "x": ("ratio", 1.0),
    "": ("ratio", 1.0),
    "times": ("ratio", 1.0),
    "%": ("ratio", 0.01),
    "percent": ("ratio", 0.01),
    "users": ("count", 1.0),
    "tokens": ("count", 1.0),
    "token": ("count", 1.0),
    "tok": ("count", 1.0),
    "requests": ("count", 1.0),
}
_EACH: Final = ("gpu", "user", "node", "rank", "req", "request", "block", "seq", "sequence")
"""What a unit may end in without changing what it measures: `tok/s/GPU`, `GB/node`."""


def unit_of(unit: str) -> tuple[Dimension, float]:
    """What a unit measures, and its size in seconds, bytes or their rates.

    Raises:
        CannotPredictError: the unit is not known.
    """
    stem, _, each = unit.rpartition("/")
    if stem and each.lower() in _EACH:
        return unit_of(stem)
    if unit in _OTHERS:
        return _OTHERS[unit]
    if unit in _SECONDS:
        return "seconds", _SECONDS[unit]
    if unit in _BYTES:
        return "bytes", float(_BYTES[unit])
    if unit in _BITS:
        return "bytes_per_s", _BITS[unit]
    above, _, below = unit.partition("/")
    if below in ("s", "sec", "second") and above in _BYTES:
        return "bytes_per_s", float(_BYTES[above])
    if unit.endswith("ps") and unit[:-2] in _BYTES:
        return "bytes_per_s", float(_BYTES[unit[:-2]])
    if above in _SECONDS and below in ("token", "tok"):
        return "s_per_token", _SECONDS[above]
    if above in _SECONDS and below in _BYTES:
        return "s_per_byte", _SECONDS[above] / _BYTES[below]
    if above in _BYTES and below in ("token", "tok"):
        return "bytes", float(_BYTES[above])
    raise CannotPredictError(f"the unit `{unit}` is not known")


def written_in(unit: str, dimension: Dimension, value: float) -> float:
    """`value` (seconds, bytes, …) as the point writes it.

    Raises:
        CannotPredictError: the unit measures something else.
    """
    found, size = unit_of(unit)
    if found != dimension:
        raise CannotPredictError(f"the unit `{unit}` does not measure {dimension}")
    return value / size
