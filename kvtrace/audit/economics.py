"""Money: what freed prefill time is worth, and what each option adds a month; all with intervals.

A pool frees prefill only. GPU time is worth its price where it can be given back in whole instances
(groups of GPUs); a pool costs its nodes, DRAM, ports, power and operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.ranges import Range
from kvtrace.audit.record import Quantity
from kvtrace.audit.thresholds import (
    FLEET_BUSY_SHARE,
    FLEET_BUSY_SHARE_HIGH,
    FLEET_BUSY_SHARE_LOW,
    PREFILL_BINDS,
)
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet, MonthlyCost, gpu_usd_per_month, pool_usd_per_month

OPERATIONS: Final = Constant(
    id="audit.operations_usd_per_month",
    title="operating a pool: a tenth of an engineer",
    value=2000.0,
    unit="USD/month",
    low=0.0,
    high=8000.0,
    kind="assumed",
    source="policy: from nothing to half an engineer; nobody measured it, put your own",
    as_of="2026",
)
FREE_OPTIONS: Final = frozenset({"as_observed", "recompute", "hbm_only", "kv_routing", "dram_idle"})
"""Options that buy nothing. Idle DRAM is priced at zero: it is there."""
POOL_OF_FLEET: Final = "pool_dram_"
"""Pooled options that are the fleet's own pool, whatever the path."""


@dataclass(frozen=True, slots=True)
class Saving:
    """GPU time given back."""

    usd_per_month: Range
    """Low and value in whole instances; the high is unrounded, a bound."""
    unrounded_usd_per_month: float


def range_of(constant: Constant) -> Range:
    """Interval of a constant; exact where none is given."""
    low = constant.value if constant.low is None else constant.low
    high = constant.value if constant.high is None else constant.high
    return Range(low, constant.value, high)


def freed_instances(
    busy_instance_s: float, span_s: float, *, shortest_span_s: float | None = None
) -> Range:
    """Instances that the freed busy time is worth, before rounding.

    Formula: busy / span / share, share the part of its time for which the fleet is kept busy
    (1.0, 0.7, 0.5 for low, value, high). `shortest_span_s` serves the high: an overloaded replay
    takes longer than the arrivals.
    """
    busy = max(busy_instance_s, 0.0)
    shortest = span_s if shortest_span_s is None else shortest_span_s
    return Range(
        busy / span_s / FLEET_BUSY_SHARE_HIGH.value,
        busy / span_s / FLEET_BUSY_SHARE.value,
        busy / shortest / FLEET_BUSY_SHARE_LOW.value,
    )


def instance_usd_per_month(fleet: Fleet) -> Range:
    """USD of one instance (all its GPUs) for a mean month."""
    return _range_of_cost(gpu_usd_per_month(fleet, fleet.gpus_per_instance))


def value_saving(freed: Range, fleet: Fleet, *, prefill_utilisation: float) -> Saving:
    """Worth of freed instances; never more than the fleet.

    Where prefill does not bind, the low is zero: decode or memory may hold every GPU.
    """
    binds = prefill_utilisation >= PREFILL_BINDS.value
    most = float(fleet.instances)
    whole = Range(
        min(math.floor(freed.low), most) if binds else 0.0,
        min(math.floor(freed.value), most),
        min(freed.high, most),
    )
    month = instance_usd_per_month(fleet)
    return Saving(
        usd_per_month=whole * month,
        unrounded_usd_per_month=min(freed.value, most) * month.value,
    )


def option_usd_per_month(option_id: str, fleet: Fleet) -> Range | None:
    """What the option adds a month; null where its cost is not modelled.

    Assumes: the GPU nodes have the network ports that they need, and the racks have room.
    """
    if option_id in FREE_OPTIONS:
        return Range.exact(0.0)
    if option_id.startswith(POOL_OF_FLEET):
        return _range_of_cost(pool_usd_per_month(fleet)) + range_of(OPERATIONS)
    return None


def usd_quantity(ident: str, amount: Range, *, title: str, source: str) -> Quantity:
    """USD a month as the record shows it."""
    return Quantity(
        id=ident,
        value=amount.value,
        low=amount.low,
        high=amount.high,
        unit="USD/month",
        title=title,
        source=source,
        kind="modelled",
    )


def _range_of_cost(cost: MonthlyCost) -> Range:
    return Range(cost.low, cost.mid, cost.high)
