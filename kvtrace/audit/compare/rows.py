"""One figure of two audits: what its values and intervals show."""

from __future__ import annotations

from typing import Final, Literal

from kvtrace.audit.compare.comparison import Row, Standing
from kvtrace.audit.record import Cell, Quantity
from kvtrace.audit.thresholds import Threshold

_EXACT_KINDS: Final = ("measured", "given", "spec")
"""Kinds whose value without an interval is what it says."""


def row_of(
    ident: str, unit: str, a: Cell, b: Cell, *, title: str = "", is_modelled: bool = False
) -> Row:
    """A figure without intervals."""
    kind: Literal["modelled", "measured"] = "modelled" if is_modelled else "measured"
    ours, theirs = (
        Quantity(id=ident, title=title, value=_cell(one), unit=unit, source="", kind=kind)
        for one in (a, b)
    )
    row = row_of_quantities(ours, theirs)
    row.a, row.b = a, b
    return row


def row_of_quantities(a: Quantity, b: Quantity) -> Row:
    """A figure with the intervals that the audits give it."""
    return Row(
        id=a.id,
        title=b.title or a.title,
        unit=b.unit,
        a_unit=a.unit,
        a=a.value,
        b=b.value,
        a_low=_number(a.low),
        a_high=_number(a.high),
        b_low=_number(b.low),
        b_high=_number(b.high),
        difference=_difference(a, b),
        standing=standing_of(a, b),
        a_source=a.source,
        b_source=b.source,
    )


def within(row: Row, tolerance: Threshold) -> Row:
    """The row, where two single replays that differ by no more than this are taken as equal.

    A tolerance of times is a share of the larger one, as the SLO check has it; one of ratios is in
    points.
    """
    a, b = _number(row.a), _number(row.b)
    if row.standing != "differs_without_interval" or a is None or b is None:
        return row
    scale = 1.0 if row.unit == "ratio" else max(abs(a), abs(b))
    if abs(b - a) <= tolerance.value * scale:
        row.standing = "no_difference_shown"
    return row


def standing_of(a: Quantity, b: Quantity) -> Standing:
    """What two values with their intervals show; a value without an interval is a point."""
    if a.value is None or b.value is None:
        return "unknown"
    if a.unit != b.unit:
        return "other_unit"
    if a.value == b.value:
        return "equal"
    ours, theirs = _span(a), _span(b)
    if ours is None or theirs is None:
        return "differs"
    if ours[0] <= theirs[1] and theirs[0] <= ours[1]:
        return "no_difference_shown"
    has_interval = ours[0] < ours[1] or theirs[0] < theirs[1]
    is_exact = a.kind in _EXACT_KINDS and b.kind in _EXACT_KINDS
    return "differs" if has_interval or is_exact else "differs_without_interval"


def _span(one: Quantity) -> tuple[float, float] | None:
    """Low and high, the value itself where no interval is known; null: it is no number."""
    value = _number(one.value)
    if value is None:
        return None
    low, high = _number(one.low), _number(one.high)
    return (value if low is None else low), (value if high is None else high)


def _difference(a: Quantity, b: Quantity) -> float | None:
    ours, theirs = _number(a.value), _number(b.value)
    return None if ours is None or theirs is None or a.unit != b.unit else theirs - ours


def _number(value: Cell) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _cell(value: Cell) -> float | int | str | None:
    """A quantity holds no truth value; its word is compared instead."""
    return str(value) if isinstance(value, bool) else value
