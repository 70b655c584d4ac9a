"""What a pool, DRAM and GPUs cost a month, at the prices of a fleet."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet.fleet import Fleet
from kvtrace.units import GB, HOURS_PER_MONTH

Bound = Literal["low", "mid", "high"]
_CostAt = Callable[[Bound], float]
_WATTS_PER_KILOWATT: Final = 1000.0


@dataclass(frozen=True, slots=True)
class MonthlyCost:
    """USD a month: from all low ends, from the values, from all high ends."""

    low: float
    mid: float
    high: float


def pool_usd_per_month(fleet: Fleet) -> MonthlyCost:
    """The pool's hardware, amortised, and its power.

    Formula: (nodes x node + GB x DRAM + ports x (NIC + switch port + 2 ends)) / months
        + (nodes x W + GB x W/GB) x hours x USD/kWh
    """
    return _over_bounds(lambda bound: _pool_usd(fleet, bound))


def dram_usd_per_month(fleet: Fleet, dram_bytes: float) -> MonthlyCost:
    """DRAM bought for the GPU nodes, amortised, and its power."""
    return _over_bounds(
        lambda bound: (
            _dram_capex_usd(fleet, dram_bytes, bound) / _months(fleet, bound)
            + _power_usd(fleet, _dram_watts(fleet, dram_bytes, bound), bound)
        )
    )


def gpu_usd_per_month(fleet: Fleet, gpus: float | None = None) -> MonthlyCost:
    """GPUs by the hour, for a mean month; all of the fleet unless told."""
    count = fleet.gpus if gpus is None else gpus
    return _over_bounds(lambda bound: count * _at(fleet.gpu_usd_per_hour, bound) * HOURS_PER_MONTH)


def _at(constant: Constant, bound: Bound) -> float:
    chosen = {"low": constant.low, "mid": constant.value, "high": constant.high}[bound]
    return constant.value if chosen is None else chosen


def _over_bounds(cost: _CostAt) -> MonthlyCost:
    return MonthlyCost(low=cost("low"), mid=cost("mid"), high=cost("high"))


def _months(fleet: Fleet, bound: Bound) -> float:
    """Cheap is slow to amortise."""
    opposite: dict[Bound, Bound] = {"low": "high", "mid": "mid", "high": "low"}
    return _at(fleet.prices["amortisation_months"], opposite[bound])


def _dram_capex_usd(fleet: Fleet, dram_bytes: float, bound: Bound) -> float:
    return dram_bytes / GB * _at(fleet.prices["dram_usd_per_gb"], bound)


def _dram_watts(fleet: Fleet, dram_bytes: float, bound: Bound) -> float:
    return dram_bytes / GB * _at(fleet.prices["dram_watts_per_gb"], bound)


def _power_usd(fleet: Fleet, watts: float, bound: Bound) -> float:
    kilowatt_hours = watts / _WATTS_PER_KILOWATT * HOURS_PER_MONTH
    return kilowatt_hours * _at(fleet.prices["electricity_usd_per_kwh"], bound)


def _pool_usd(fleet: Fleet, bound: Bound) -> float:
    """The pool as sized: prices vary over the bounds, its size does not."""
    nodes, dram_bytes = fleet.pool_nodes.value, fleet.pool_dram_bytes.value
    port_usd = math.fsum(
        (
            _at(fleet.prices.nic(fleet.pool_port_line_bytes_per_s), bound),
            _at(fleet.prices["switch_port_usd"], bound),
            2 * _at(fleet.prices["optics_usd_per_end"], bound),
        )
    )
    capex = math.fsum(
        (
            nodes * _at(fleet.prices["pool_node_usd"], bound),
            _dram_capex_usd(fleet, dram_bytes, bound),
            nodes * fleet.pool_nics_per_node.value * port_usd,
        )
    )
    watts = nodes * _at(fleet.prices["pool_node_watts"], bound) + _dram_watts(
        fleet, dram_bytes, bound
    )
    return capex / _months(fleet, bound) + _power_usd(fleet, watts, bound)
