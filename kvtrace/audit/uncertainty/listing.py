"""Open inputs in the order and the shape of the record."""

from __future__ import annotations

from collections.abc import Iterable

from kvtrace.audit.uncertainty.quantiles import Estimate
from kvtrace.audit.uncertainty.record import OpenInput
from kvtrace.audit.uncertainty.swings import Swing


def ranked(swings: Iterable[Swing]) -> list[Swing]:
    """The widest first; equal ones by name."""
    return sorted(swings, key=lambda one: (-one.width, one.unknown.id))


def as_record(one: Swing, *, worth: Estimate | None = None) -> OpenInput:
    """An input as the record holds it."""
    unknown = one.unknown
    return OpenInput(
        id=unknown.id,
        title=unknown.title,
        unit=unknown.unit,
        low=unknown.low,
        value=unknown.value,
        high=unknown.high,
        distribution=unknown.distribution,
        source=unknown.source,
        kind=unknown.kind,
        net_at_low=one.at_low,
        net_at_high=one.at_high,
        switch_value=one.switch,
        switch_between=None if one.between is None else list(one.between),
        worth_usd_per_month=None if worth is None else worth.value,
        worth_error=None if worth is None else worth.error,
        settle=unknown.settle,
        line=unknown.line,
    )
