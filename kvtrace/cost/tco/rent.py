"""Lines of what is rented: cloud nodes, managed caches, file systems, object stores, GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from typing import Final

from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.bill import BillLine
from kvtrace.cost.tco.need import Need
from kvtrace.cost.tco.other_gpus import other_gpu_lines
from kvtrace.cost.tco.running import running
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.units import DAYS_PER_MONTH, GB, GIB, HOURS_PER_MONTH, MIB

_ROUNDING: Final = 1e-9


def rented_lines(
    need: Need, fleet: Fleet, traffic: Traffic | None, *, gpus: int, today: date | None
) -> list[BillLine]:
    """Everything that is rented for the option; zero lines are left out."""
    other = [] if need.gpu is None else other_gpu_lines(need.gpu, fleet, gpus, today)
    lines = [
        *_cloud_nodes(need, fleet),
        *_managed(need, fleet),
        *_appliance(need, fleet),
        *_object_store(need, fleet, traffic),
        *_between_zones(need, fleet, traffic),
        *other,
    ]
    return [line for line in lines if line.quantity]


def shapes(wanted_bytes: float, shape_gib: Constant, usable: Constant) -> int:
    """Nodes of one fixed shape that hold `wanted_bytes`, in whole nodes."""
    return math.ceil(wanted_bytes / usable_bytes(shape_gib, usable) - _ROUNDING)


def usable_bytes(shape_gib: Constant, usable: Constant) -> float:
    """Bytes of one node of a fixed shape that hold data."""
    return shape_gib.value * GIB * usable.value


def nodes_of_pool(need: Need, fleet: Fleet) -> float:
    """Nodes of the pool that run: those that are rented, in whole shapes, else those bought."""
    if fleet.pool_purchase.value != "rented":
        return need.pool_nodes
    return max(_nodes_by_size(need, fleet), math.ceil(need.pool_nodes))


def _nodes_by_size(need: Need, fleet: Fleet) -> int:
    prices = fleet.prices
    shape, usable = prices["cloud_node_dram_gib"], prices["cloud_node_dram_share"]
    return shapes(need.pool_dram_bytes, shape, usable)


def _cloud_nodes(need: Need, fleet: Fleet) -> Iterator[BillLine]:
    if fleet.pool_purchase.value != "rented":
        return
    prices = fleet.prices
    by_size = _nodes_by_size(need, fleet)
    yield _by_the_hour(
        "cloud_nodes",
        "cloud nodes of the pool",
        nodes_of_pool(need, fleet),
        prices["cloud_node_usd_per_hour"],
        note=f"{by_size} for the DRAM, {math.ceil(need.pool_nodes)} stated; in whole nodes",
    )
    yield running(
        "cloud_ssd",
        "flash of the cloud nodes",
        "rent",
        Interval.exact(need.pool_ssd_bytes / GB),
        "GB",
        prices["cloud_ssd_usd_per_gb_month"],
    )


def _managed(need: Need, fleet: Fleet) -> Iterator[BillLine]:
    prices = fleet.prices
    shape = prices["managed_cache_node_gib"]
    nodes = shapes(need.managed_cache_bytes, shape, prices["managed_cache_share"])
    yield _by_the_hour(
        "managed_cache",
        "nodes of a managed cache",
        nodes,
        prices["managed_cache_usd_per_hour"],
        note=f"whole nodes of {shape.value:g} GiB",
    )


def _by_the_hour(ident: str, title: str, nodes: float, price: Constant, *, note: str) -> BillLine:
    hours = Interval.exact(nodes * HOURS_PER_MONTH)
    return running(ident, title, "rent", hours, "node-hours/month", price, note=note)


def _appliance(need: Need, fleet: Fleet) -> Iterator[BillLine]:
    for key, title, amount, unit, price in (
        ("appliance_capacity", "capacity of the file system", need.appliance_bytes, "GB",
         "appliance_usd_per_gb_month"),
        ("appliance_rate", "throughput of the file system", need.appliance_bytes_per_s, "GB/s",
         "appliance_usd_per_gb_per_s_month"),
    ):  # fmt: skip
        quantity = Interval.exact(amount / GB)
        yield running(key, title, "rent", quantity, unit, fleet.prices[price])


def _object_store(need: Need, fleet: Fleet, traffic: Traffic | None) -> Iterator[BillLine]:
    if not need.object_store_bytes:
        return
    prices = fleet.prices
    size = Interval.exact(need.object_store_bytes / GB)
    price = prices["object_usd_per_gb_month"]
    yield running("object_capacity", "capacity of the object store", "rent", size, "GB", price)
    if traffic is None:
        return
    each = Interval.of(prices["object_request_mib"])
    for key, title, moved, name in (
        ("object_puts", "writes to the object store", traffic.written_bytes_per_day,
         "object_put_usd"),
        ("object_gets", "reads of the object store", traffic.read_bytes_per_day, "object_get_usd"),
    ):  # fmt: skip
        requests = Interval.exact(moved / MIB * DAYS_PER_MONTH) / each
        yield running(key, title, "rent", requests, "requests/month", prices[name])


def _between_zones(need: Need, fleet: Fleet, traffic: Traffic | None) -> Iterator[BillLine]:
    """Bytes of a rented pool or cache that leave the zone."""
    is_rented = fleet.pool_purchase.value == "rented" and need.pool_nodes
    if traffic is None or not (is_rented or need.managed_cache_bytes):
        return
    moved = traffic.read_bytes_per_day + traffic.written_bytes_per_day
    crossing = Interval.of(fleet.cross_zone_share).scaled(moved / GB * DAYS_PER_MONTH)
    price = fleet.prices["cross_zone_usd_per_gb"]
    line = running(
        "cross_zone",
        "bytes between zones",
        "rent",
        crossing,
        "GB/month",
        price,
        note=f"{fleet.cross_zone_share.value:.0%} of the bytes cross",
    )
    yield line
