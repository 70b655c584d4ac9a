"""How far a figure may lie, by the intervals of the constants that it follows from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvtrace.cost.efficiency import efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.walk import replaced_constant

if TYPE_CHECKING:
    from kvtrace.cost.deployment import Deployment

Figures = Mapping[str, float]
"""Figures by name, all finite."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its low and high end."""

    low: float
    value: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A figure without uncertainty."""
        return cls(value, value, value)

    @classmethod
    def of(cls, constant: Constant) -> Interval:
        """A constant with its ends; exact where none is given."""
        value = constant.value
        low = value if constant.low is None else constant.low
        return cls(low, value, value if constant.high is None else constant.high)

    def __add__(self, other: Interval) -> Interval:
        """Sum, as if all lows (or all highs) came together."""
        return Interval(self.low + other.low, self.value + other.value, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        """Product of two figures of zero or more, as if all lows came together."""
        return Interval(self.low * other.low, self.value * other.value, self.high * other.high)

    def __truediv__(self, other: Interval) -> Interval:
        """Quotient of two figures of zero or more, the widest; `other` is above zero."""
        return Interval(self.low / other.high, self.value / other.value, self.high / other.low)

    def scaled(self, factor: float) -> Interval:
        """Times an exact factor; below zero it turns the ends round."""
        ends = (self.low * factor, self.high * factor)
        return Interval(min(ends), self.value * factor, max(ends))

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign holds over the whole interval."""
        return self.low > 0 or self.high < 0


def figure_intervals(
    deployment: Deployment,
    figures: Callable[[Deployment], Figures],
    constants: Iterable[Constant],
) -> dict[str, Interval]:
    """Each figure with its interval.

    Every constant is moved alone to its low and to its high end, and all figures are worked out
    again. Assumes that the constants err independently: what they do upwards adds in quadrature,
    and so does what they do downwards.

    Formula: high = value + sqrt(sum of (largest rise by constant i)^2), low alike.
    """
    middle = figures(deployment)
    rises: dict[str, list[float]] = {name: [] for name in middle}
    falls: dict[str, list[float]] = {name: [] for name in middle}
    for constant in constants:
        ends = {end for end in (constant.low, constant.high) if end is not None}
        moved = [
            figures(with_constant(deployment, constant.id, end))
            for end in sorted(ends - {constant.value})
        ]
        for name, value in middle.items():
            changes = [at[name] - value for at in moved]
            rises[name].append(max(0.0, *changes) if changes else 0.0)
            falls[name].append(min(0.0, *changes) if changes else 0.0)
    return {
        name: Interval(
            value - math.sqrt(math.fsum(fall * fall for fall in falls[name])),
            value,
            value + math.sqrt(math.fsum(rise * rise for rise in rises[name])),
        )
        for name, value in middle.items()
    }


def with_constant(deployment: Deployment, id: str, value: float) -> Deployment:
    """The deployment with one constant of its hardware or efficiencies at another value."""
    table = deployment.efficiencies or efficiency_table()
    return replace(
        deployment,
        hardware=replaced_constant(deployment.hardware, id, value),
        efficiencies=replaced_constant(table, id, value),
    )
