"""How far a figure may lie, by the intervals of the constants that it follows from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kvtrace.cost.efficiency import efficiency_table
from kvtrace.cost.evidence import Constant

if TYPE_CHECKING:
    from kvtrace.cost.deployment import Deployment

T = TypeVar("T")
Figures = Mapping[str, float]
"""Figures by name, all finite."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its low and high end."""

    low: float
    value: float
    high: float

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
        hardware=_moved(deployment.hardware, id, value),
        efficiencies=_moved(table, id, value),
    )


def _moved(part: T, id: str, value: float) -> T:
    """The same value with every constant of this id replaced; itself where there is none."""
    return cast("T", _moved_any(part, id, value))


def _moved_any(part: object, id: str, value: float) -> object:
    if isinstance(part, Constant):
        return replace(part, value=value, low=None, high=None) if part.id == id else part
    if isinstance(part, tuple):
        items = tuple(_moved_any(item, id, value) for item in part)
        return part if all(a is b for a, b in zip(items, part, strict=True)) else items
    if isinstance(part, Mapping):
        entries = {key: _moved_any(item, id, value) for key, item in part.items()}
        return part if all(entries[key] is item for key, item in part.items()) else entries
    if is_dataclass(part) and not isinstance(part, type):
        changes: dict[str, Any] = {}
        for field in fields(part):
            before = getattr(part, field.name)
            after = _moved_any(before, id, value)
            if after is not before:
                changes[field.name] = after
        return replace(part, **changes) if changes else part
    return part
