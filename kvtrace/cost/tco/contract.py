"""What the contract of today's GPUs lets go: interest where owned, a last day where reserved."""

from __future__ import annotations

from datetime import date

from kvtrace.cost.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.units import HOURS_PER_MONTH, MONTHS_PER_YEAR


def paid_until(fleet: Fleet, today: date | None) -> date | None:
    """Last day of a reservation that runs: until then GPUs are paid, used or not; else null.

    `date.max` where no last day is stated. `today`: the last day of the log; null: no log or
    setting says it, and no reservation counts as over.
    """
    if fleet.contract.kind.value != "reserved":
        return None
    until = fleet.contract.until
    if until is None:
        return date.max
    return None if today is not None and today > until else until


def deferred_usd_per_month(fleet: Fleet, gpus: int) -> Interval:
    """Interest on `gpus` that are not bought yet.

    Formula: GPUs x price x rate / 12; price: as `gpu_purchase_usd`.
    """
    rate = Interval.of(fleet.prices["financing_rate_per_year"]).scaled(1.0 / MONTHS_PER_YEAR)
    return gpu_purchase_usd(fleet).scaled(gpus) * rate


def gpu_purchase_usd(fleet: Fleet) -> Interval:
    """Price of a GPU with its part of the server: months of its on-demand rent."""
    months = Interval.of(fleet.prices["gpu_purchase_months_of_rent"])
    return Interval.of(fleet.gpu_usd_per_hour).scaled(HOURS_PER_MONTH) * months
