"""A number with its low and its high: the form in which money and time are weighed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from kvtrace.audit.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Range:
    """A non-negative number that is uncertain: low ≤ value ≤ high, in one unit."""

    low: float
    value: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Self:
        """A number without uncertainty."""
        return cls(value, value, value)

    def __add__(self, other: Range) -> Range:
        """Sum, as if all lows (or all highs) came together: the widest interval."""
        return Range(self.low + other.low, self.value + other.value, self.high + other.high)

    def __mul__(self, other: Range) -> Range:
        """Product of two non-negative ranges, widest interval."""
        return Range(self.low * other.low, self.value * other.value, self.high * other.high)

    def __truediv__(self, other: Range) -> Range:
        """Quotient of two non-negative ranges, widest interval; `other` is above zero."""
        return Range(self.low / other.high, self.value / other.value, self.high / other.low)

    def scaled(self, factor: float) -> Range:
        """Times an exact, non-negative factor."""
        return Range(self.low * factor, self.value * factor, self.high * factor)

    def modelled(self, ident: str, unit: str, title: str, source: str) -> Quantity:
        """The range as the record shows it."""
        return Quantity(
            id=ident,
            value=self.value,
            low=self.low,
            high=self.high,
            unit=unit,
            title=title,
            source=source,
            kind="modelled",
        )


def finite(value: float | None) -> float | None:
    """The value, or None where it is not a finite number: JSON knows no NaN."""
    return None if value is None or not math.isfinite(value) else float(value)


def difference(minuend: float, subtrahend: float) -> float:
    """Minuend - subtrahend; exactly zero where they differ by less than a millionth."""
    if math.isclose(minuend, subtrahend, rel_tol=1e-6, abs_tol=0.0):
        return 0.0
    return minuend - subtrahend


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Quotient, or None where either is unknown or the denominator is zero."""
    if numerator is None or denominator is None or denominator == 0:
        return None
    return finite(numerator / denominator)
