"""Lines of what an option costs while it runs: power, people, licences and support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.bill import ZERO, BillLine, Group, total
from kvtrace.cost.tco.need import Need
from kvtrace.units import GB, HOURS_PER_MONTH, MONTHS_PER_YEAR, TB

_WATTS_PER_KILOWATT: Final = 1000.0


def kwh_per_month(need: Need, fleet: Fleet) -> Interval:
    """Energy at the meter, of bought and rented machines alike.

    Formula: (nodes x W + GB x W/GB + TB x W/TB + ports x W) x hours x cooling factor. Ports of
    pool nodes are in the power of a node, and what is rented by capacity is not in it.
    """
    prices = fleet.prices
    drawn = (
        ("pool_node_watts", need.pool_nodes),
        ("dram_watts_per_gb", (need.pool_dram_bytes + need.gpu_node_dram_bytes) / GB),
        ("nvme_watts_per_tb", (need.pool_ssd_bytes + need.gpu_node_ssd_bytes) / TB),
        ("nic_watts", 0.0 if fleet.network.is_built.value else need.gpu_node_ports),
    )
    watts = total(Interval.of(prices[name]).scaled(count) for name, count in drawn)
    hours = HOURS_PER_MONTH / _WATTS_PER_KILOWATT
    return watts.scaled(hours) * Interval.of(prices["cooling_factor"])


def power_line(need: Need, fleet: Fleet) -> BillLine:
    """Electricity of what stands in one's own racks."""
    own = need
    if fleet.pool_purchase.value == "rented":
        own = Need(
            gpu_node_dram_bytes=need.gpu_node_dram_bytes,
            gpu_node_ssd_bytes=need.gpu_node_ssd_bytes,
            gpu_node_ports=need.gpu_node_ports,
        )
    energy, price = kwh_per_month(own, fleet), fleet.prices["meter_usd_per_kwh"]
    cooling = fleet.prices["cooling_factor"].value
    return running(
        "power",
        "power with cooling",
        "power",
        energy,
        "kWh/month",
        price,
        note=f"cooling factor {cooling:g}",
    )


def kg_co2_per_month(kwh: Interval, fleet: Fleet) -> Interval:
    """Emissions of the energy, at the intensity of the grid."""
    return kwh * Interval.of(fleet.prices["grid_kg_co2_per_kwh"])


def people_lines(need: Need, fleet: Fleet, nodes: float) -> list[BillLine]:
    """Operations and licences of what somebody runs as a service, on so many nodes."""
    if not need.is_operated:
        return []
    share = Interval.of(fleet.prices["operations_fte_share"])
    rate = fleet.prices["fte_usd_per_year"]
    line = running(
        "operations",
        "operations",
        "people",
        share,
        "FTE",
        rate,
        months=MONTHS_PER_YEAR,
    )
    licence = running(
        "licence",
        "licences",
        "software",
        Interval.exact(nodes),
        "nodes",
        fleet.prices["licence_usd_per_node_month"],
    )
    return [line, licence]


def support_line(bought: Sequence[BillLine], fleet: Fleet) -> BillLine:
    """Support contracts: a share of the purchase a year."""
    paid = total(line.capex_usd for line in bought)
    price = fleet.prices["support_share_per_year"]
    return running(
        "support",
        "support contracts",
        "software",
        paid,
        "USD",
        price,
        months=MONTHS_PER_YEAR,
        note="of what is bought",
    )


def running(
    ident: str,
    title: str,
    group: Group,
    quantity: Interval,
    unit: str,
    price: Constant,
    *,
    months: int = 1,
    note: str = "",
) -> BillLine:
    """A line that is paid each month: quantity x price / the months that the price is for."""
    return BillLine(
        id=ident,
        title=title,
        group=group,
        quantity=quantity.value,
        unit=unit,
        price=price,
        capex_usd=ZERO,
        opex_usd_per_month=(quantity * Interval.of(price)).scaled(1.0 / months),
        note=note,
    )
