"""What the GPUs of a fleet cost a month, by the hour."""

from __future__ import annotations

from kvtrace.cost.fleet.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.units import HOURS_PER_MONTH


def gpu_usd_per_month(fleet: Fleet, gpus: float | None = None) -> Interval:
    """GPUs by the hour, for a mean month; all of the fleet unless told."""
    count = fleet.gpus if gpus is None else gpus
    return Interval.of(fleet.gpu_usd_per_hour).scaled(count * HOURS_PER_MONTH)
