"""Amounts of money, energy and prices as the record shows them."""

from __future__ import annotations

from kvtrace.audit.quantity import Quantity
from kvtrace.audit.uncertainty.ranges import Range, finite
from kvtrace.cost.interval import Interval

USD_PER_MONTH = "USD/month"


def amount(ident: str, value: Interval | Range, unit: str, *, title: str, source: str) -> Quantity:
    """A modelled amount with its interval."""
    return Quantity(
        id=ident,
        value=finite(value.value),
        low=finite(value.low),
        high=finite(value.high),
        unit=unit,
        title=title,
        source=source,
        kind="modelled",
    )


def unknown(ident: str, unit: str, *, title: str, source: str, why: str) -> Quantity:
    """An amount that cannot be given, and why."""
    return Quantity(
        id=ident,
        value=None,
        unit=unit,
        title=title,
        source=source,
        kind="modelled",
        interval_reason=why,
    )
