"""Counts, shares and grades of evidence as sentences have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.schema.manifest import Grade

GRADE_SAYS: Final[Mapping[Grade, str]] = {
    "A": "block identity of every request",
    "B": "the source counts cached tokens but does not identify blocks",
    "C": "the source holds aggregates only",
    "L": "the source holds lengths and latencies only",
}
"""What a grade of evidence means."""


def counted(number: int, noun: str) -> str:
    """`1 request`, `1,448 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share of 0..1 as `81.9 %`."""
    return f"{100 * share:.1f} %"
