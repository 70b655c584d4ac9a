"""Money: what freed prefill time is worth, and what each option adds a month; all with intervals.

A pool frees prefill only. GPU time is worth its price where it can be given back in whole instances
(groups of GPUs) without a worse TTFT, which replays on fewer instances show. What an instance is
worth is in `gpu_worth.py`, what an option costs in `bills.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.audit.bounds import busiest_instances
from kvtrace.audit.money.gpu_worth import GpuWorth
from kvtrace.audit.record import Quantity
from kvtrace.audit.slo.fleets import Saved
from kvtrace.audit.thresholds import (
    BURST_WINDOW,
    BUSY_WINDOW,
    FLEET_BUSY_SHARE,
    FLEET_BUSY_SHARE_HIGH,
    FLEET_BUSY_SHARE_LOW,
)
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.schema.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Saving:
    """GPU time given back."""

    instances: Range
    """Whole ones: low and value by replay, the low at the ends of the constants; the high may be an
    estimate."""
    usd_per_month: Range
    unrounded_usd_per_month: float
    """Worth of the freed time before rounding: an estimate."""


def range_of(constant: Constant) -> Range:
    """Interval of a constant; exact where none is given."""
    low = constant.value if constant.low is None else constant.low
    high = constant.value if constant.high is None else constant.high
    return Range(low, constant.value, high)


def freed_instances(busy_instance_s: float, span_s: float) -> Range:
    """Instances that the freed busy time is worth, before rounding: an estimate, no bound.

    Formula: busy / span / share, share the part of its time for which the fleet is kept busy
    (1.0, 0.7, 0.5 for low, value, high). `span_s` is that of the arrivals: an overloaded replay
    takes longer to drain, which says nothing of the load.
    """
    busy = max(busy_instance_s, 0.0) / span_s
    return Range(
        busy / FLEET_BUSY_SHARE_HIGH.value,
        busy / FLEET_BUSY_SHARE.value,
        busy / FLEET_BUSY_SHARE_LOW.value,
    )


def peak_instances(arrived_at_ns: IntArray, seconds: FloatArray, span_s: float) -> Range:
    """Instances that this work of each request keeps busy; the high holds in the busiest minutes.

    Formula: low: all work / span; value: the busiest five minutes at the usual busy share; high:
    these at the lowest busy share, or a burst of twenty seconds at full use, whichever is more.
    """
    minutes = busiest_instances(arrived_at_ns, seconds, BUSY_WINDOW.value)
    burst = busiest_instances(arrived_at_ns, seconds, BURST_WINDOW.value)
    low = math.fsum(seconds) / span_s
    value = max(low, minutes / FLEET_BUSY_SHARE.value)
    return Range(low, value, max(value, minutes / FLEET_BUSY_SHARE_LOW.value, burst))


def value_saving(
    saved: Saved,
    freed: Range,
    fleet: Fleet,
    worth: GpuWorth,
    *,
    is_replayed: bool,
    is_rival_able: bool = True,
) -> Saving:
    """Worth of saved instances; never more than the fleet.

    The low is what replays at the ends of the constants give back, the value what they do at the
    middle. Where no replay on fewer instances speaks (`is_replayed` False), the value is the
    estimate in whole instances. The last instance serves: it is not given back, unless the rival
    needs more than the fleet. Instances that are avoided beyond the fleet count in the high only.
    """
    most = fleet.instances - is_rival_able
    estimate = min(math.floor(freed.value), most)
    value = float(saved.at_least if is_replayed else max(saved.at_least, estimate))
    whole = max(math.floor(min(freed.high, fleet.instances)), saved.at_least + saved.avoided)
    instances = Range(float(saved.low), value, max(value, float(whole)))
    of = max(fleet.instances, saved.needed_without)
    unrounded = Range.exact(min(freed.value, float(fleet.instances)))
    return Saving(
        instances=instances,
        usd_per_month=worth.usd_per_month(instances, of=of),
        unrounded_usd_per_month=worth.usd_per_month(unrounded, of=fleet.instances).value,
    )


def usd_quantity(ident: str, amount: Range, *, title: str, source: str) -> Quantity:
    """USD a month as the record shows it."""
    return amount.modelled(ident, "USD/month", title, source)
