"""The bill of what an option needs, at the prices of a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from kvtrace.cost.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.bill import ZERO, Bill
from kvtrace.cost.tco.need import Need
from kvtrace.cost.tco.purchase import bought_lines, financing_line
from kvtrace.cost.tco.rent import nodes_of_pool, rented_lines
from kvtrace.cost.tco.running import (
    kg_co2_per_month,
    kwh_per_month,
    people_lines,
    power_line,
    support_line,
)
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.units import GB


def build_bill(
    need: Need,
    fleet: Fleet,
    *,
    traffic: Traffic | None = None,
    gpus: int | None = None,
    today: date | None = None,
) -> Bill:
    """All lines of one option; nothing needed costs nothing.

    `gpus` are those that the option runs on, where it takes other ones; null: as many as today.
    `today`: the last day of the log, by which a reservation is over or not; null: not over.
    """
    bought = bought_lines(need, fleet, traffic)
    bought_and_kept = [*bought, support_line(bought, fleet)] if need.is_operated else bought
    lines = [
        *bought_and_kept,
        power_line(need, fleet),
        *people_lines(need, fleet, nodes_of_pool(need, fleet)),
        financing_line(bought, fleet),
        *rented_lines(need, fleet, traffic, gpus=fleet.gpus if gpus is None else gpus, today=today),
    ]
    energy = kwh_per_month(need, fleet)
    return Bill(
        lines=tuple(line for line in lines if line.quantity or line.usd_per_month != ZERO),
        idle_dram_at_cost=_idle_at_cost(need, fleet),
        gaps=tuple(_gaps(need, traffic)),
        kwh_per_month=energy,
        kg_co2_per_month=kg_co2_per_month(energy, fleet),
    )


def _idle_at_cost(need: Need, fleet: Fleet) -> Interval:
    """Idle DRAM as if it were bought for this: it draws its power anyway."""
    price, months = fleet.prices["dram_usd_per_gb"], fleet.prices["amortisation_months"]
    paid = Interval.of(price).scaled(need.idle_dram_bytes / GB)
    return paid / Interval.of(months)


def _gaps(need: Need, traffic: Traffic | None) -> Iterator[str]:
    if traffic is not None:
        return
    if need.pool_ssd_bytes or need.gpu_node_ssd_bytes or need.worn_ssd_bytes:
        yield "wear of flash: the bytes written a day are not known"
    if need.object_store_bytes:
        yield "requests to the object store: the bytes moved a day are not known"
