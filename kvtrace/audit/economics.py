"""Money: what freed prefill time is worth, and what a pool costs a month; all with intervals.

A pool frees prefill only. GPU time is worth its price where it can be given back in whole instances
(groups of GPUs); a pool costs its nodes, DRAM, NIC and switch ports, power and operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
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
from kvtrace.cost.evidence import Constant, price
from kvtrace.units import GB, HOURS_PER_MONTH, KB

OPERATIONS: Final = Constant(
    id="audit.operations_usd_per_month",
    title="operating a pool: a tenth of an engineer",
    value=2000.0,
    unit="USD/month",
    low=0.0,
    high=8000.0,
    kind="assumed",
    source="policy: none to half an engineer; nobody measured it, put your own",
    as_of="2026",
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What money needs to know of the fleet."""

    instances: int
    gpus_per_instance: int
    gpu_usd_per_hour: Constant

    @property
    def instance_usd_per_month(self) -> Range:
        """USD of one instance for a mean month."""
        return range_of(self.gpu_usd_per_hour).scaled(self.gpus_per_instance * HOURS_PER_MONTH)


@dataclass(frozen=True, slots=True)
class PoolShape:
    """What a pool is made of."""

    nodes: int
    dram_bytes: float
    """Over all its nodes."""
    ports: int
    """NIC ports over all its nodes."""
    port_usd: Constant


@dataclass(frozen=True, slots=True)
class CostLine:
    """One line of the cost of ownership."""

    id: str
    usd_per_month: Range
    what: str


@dataclass(frozen=True, slots=True)
class Saving:
    """GPU time given back."""

    instances: Range
    """Before rounding to whole instances."""
    usd_per_month: Range
    """Low and value in whole instances; the high is unrounded, a bound."""
    unrounded_usd_per_month: float


def range_of(constant: Constant) -> Range:
    """Interval of a constant; exact where none is given."""
    low = constant.value if constant.low is None else constant.low
    high = constant.value if constant.high is None else constant.high
    return Range(low, constant.value, high)


def freed_instances(busy_instance_s: float, span_s: float, *, instances: int) -> Range:
    """Instances that the freed busy time is worth, before rounding.

    Formula: busy / span / share, share the part of its time for which the fleet is kept busy
    (0.5, 0.7, 1.0 for high, value, low); never more than the fleet.
    """
    busy = max(busy_instance_s, 0.0) / span_s
    low, value, high = (
        min(busy / share.value, float(instances))
        for share in (FLEET_BUSY_SHARE_HIGH, FLEET_BUSY_SHARE, FLEET_BUSY_SHARE_LOW)
    )
    return Range(low, value, high)


def value_saving(freed: Range, fleet: Fleet, *, prefill_utilisation: float) -> Saving:
    """Worth of freed instances.

    Where prefill does not bind, the low is zero: decode or memory may hold every GPU.
    """
    binds = prefill_utilisation >= PREFILL_BINDS.value
    whole = Range(
        math.floor(freed.low) if binds else 0.0, float(math.floor(freed.value)), freed.high
    )
    month = fleet.instance_usd_per_month
    return Saving(
        instances=freed,
        usd_per_month=whole * month,
        unrounded_usd_per_month=freed.value * month.value,
    )


def pool_cost_lines(pool: PoolShape) -> tuple[CostLine, ...]:
    """Cost of ownership of a pool by line, USD a month.

    Formula: purchases / amortisation months + power x hours x price + operations.
    Assumes: the GPU nodes have the NICs that they need, and idle rack space.
    """
    months = range_of(price("amortisation_months"))
    gigabytes = pool.dram_bytes / GB
    kilowatt_hours = HOURS_PER_MONTH / KB
    watts = range_of(price("pool_node_watts")).scaled(pool.nodes) + range_of(
        price("dram_watts_per_gb")
    ).scaled(gigabytes)
    network = range_of(price("switch_port_usd")) + range_of(price("optics_usd_per_end")).scaled(2)
    return (
        CostLine(
            "dram",
            range_of(price("dram_usd_per_gb")).scaled(gigabytes) / months,
            f"{gigabytes:,.0f} GB of DRAM",
        ),
        CostLine(
            "nodes",
            range_of(price("pool_node_usd")).scaled(pool.nodes) / months,
            f"{pool.nodes} pool nodes",
        ),
        CostLine(
            "nics", range_of(pool.port_usd).scaled(pool.ports) / months, f"{pool.ports} ports"
        ),
        CostLine(
            "network",
            network.scaled(pool.ports) / months,
            f"{pool.ports} switch ports with optics at both ends",
        ),
        CostLine(
            "power",
            (watts * range_of(price("electricity_usd_per_kwh"))).scaled(kilowatt_hours),
            "power with cooling",
        ),
        CostLine("operations", range_of(OPERATIONS), OPERATIONS.title),
    )


def total_cost(lines: Iterable[CostLine]) -> Range:
    """Sum of the lines: low with low, high with high."""
    total = Range.exact(0.0)
    for line in lines:
        total = total + line.usd_per_month
    return total


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
