"""When a purchase has paid for itself, and what it is worth over its life."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.units import MONTHS_PER_YEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What one option pays and saves beyond another."""

    capex_usd: float
    opex_usd_per_month: float
    """Without financing: the discount rate stands for it."""
    saving_usd_per_month: float
    later_opex_usd_per_month: float | None = None
    """Once savings begin, where it is another: GPUs of a contract that has ended are not paid any
    more. Null: as before."""
    first_month: float = 0.0
    """Months until savings begin: a contract that runs; infinite: never."""

    @property
    def opex_later(self) -> float:
        """USD a month that it costs to run once savings have begun."""
        later = self.later_opex_usd_per_month
        return self.opex_usd_per_month if later is None else later


def payback_months(flow: Flow) -> float | None:
    """Months until savings have paid purchase and running cost; null: never.

    Formula: s + (capex + opex s) / (saving - opex from then on), s the months until savings begin;
    no interest.
    """
    gain = flow.saving_usd_per_month - flow.opex_later
    wait = flow.first_month
    if gain <= 0 or math.isinf(wait):
        return None
    return wait + max(0.0, flow.capex_usd + flow.opex_usd_per_month * wait) / gain


def npv_usd(flow: Flow, *, months: float, rate_per_year: float) -> float:
    """Net present value over `months`; amounts fall at the end of each month.

    Formula: -capex + sum over m = 1..n of (saving of m - opex) / (1 + r / 12)^m; the saving of a
    month before savings begin is nothing, and nothing is left of the purchase at the end.
    """
    step = 1.0 + rate_per_year / MONTHS_PER_YEAR
    gain = flow.saving_usd_per_month - flow.opex_later
    flows = (
        (gain if m > flow.first_month else -flow.opex_usd_per_month) / step**m
        for m in range(1, math.floor(months) + 1)
    )
    return math.fsum((-flow.capex_usd, *flows))
