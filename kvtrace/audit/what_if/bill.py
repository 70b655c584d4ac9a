"""How the bills of a pool and of its rival follow size, nodes, ports and the price of DRAM.

Bills are asked for at a few needs and prices, and the parts read off; where the parts do not add up
to the bill (shapes of a cloud, appliances), the size stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import GpuWorth
from kvtrace.audit.what_if.record import WhatIfMoney, WhatIfPorts
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.fleet.prices import nic_price_name
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need
from kvtrace.units import GB, HOURS_PER_MONTH, TB

_DRAM: Final = "dram_usd_per_gb"
_BITS: Final = 8.0
_CLASSES: Final = (25.0 * GB, 50.0 * GB, 100.0 * GB)
"""Line rates (bytes/s) at the top of each class of port prices; the last has no top."""
_CLOSE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Asked:
    """The bill of other needs at other prices of DRAM."""

    bills: Bills
    option: str

    def usd(self, need: Need, dram_usd: float | None = None) -> float:
        """Middle of its bill a month; null: DRAM at the fleet's price."""
        bills = self.bills
        fleet = bills.fleet if dram_usd is None else _at_dram_price(bills.fleet, dram_usd)
        return build_bill(
            need,
            fleet,
            traffic=bills.traffic.get(self.option),
            gpus=bills.gpus.get(self.option),
            today=bills.today,
        ).usd_per_month.value


def _at_dram_price(fleet: Fleet, usd_per_gb: float) -> Fleet:
    price = fleet.prices[_DRAM].given(usd_per_gb, source="what if")
    return replace(fleet, prices=fleet.prices.with_stated(price))


def build_money(bills: Bills, worth: GpuWorth, pool: str, rival: str) -> WhatIfMoney | None:
    """The parts; null where a bill is not known."""
    need, other = bills.need(pool), bills.need(rival)
    if need is None or other is None:
        return None
    rival_free = _Asked(bills, rival).usd(other, 0.0)
    rival_slope = _Asked(bills, rival).usd(other, 1.0) - rival_free
    found = WhatIfMoney(
        hours_per_month=float(HOURS_PER_MONTH),
        instance_usd_per_gpu_usd=0.0
        if worth.paid_until is not None
        else worth.instance_usd_per_month.value / bills.fleet.gpu_usd_per_hour.value,
        profile=list(worth.profile or ()),
        pool_usd=0.0,
        nodes=0.0,
        node_bytes=0.0,
        ports=[WhatIfPorts(upto_bits_per_s=None, node_usd=0.0, gpu_nodes_usd=0.0)],
        port_bits_per_s=_BITS * (need.port_bytes_per_s or bills.fleet.pool_port_line_bytes_per_s),
        gb_usd=0.0,
        gb_usd_per_dram_usd=0.0,
        rival_usd=rival_free,
        rival_usd_per_dram_usd=rival_slope,
    )
    asked = _Asked(bills, pool)
    if not _in_parts(found, need, asked):
        found.pool_usd = asked.usd(need)
    return found


def _in_parts(found: WhatIfMoney, need: Need, asked: _Asked) -> bool:
    """Fill the parts in; False, and nothing filled, where they do not add up to the bill."""
    if need.pool_nodes < 1 or not need.pool_nodes.is_integer() or not need.pool_dram_bytes:
        return False
    none = replace(need, pool_nodes=0.0, pool_dram_bytes=0.0, pool_ports=0.0, gpu_node_ports=0.0)
    fixed = asked.usd(none)
    sample = replace(none, pool_dram_bytes=float(TB))
    gb_free = (asked.usd(sample, 0.0) - fixed) * GB / TB
    gb_slope = (asked.usd(sample, 1.0) - asked.usd(sample, 0.0)) * GB / TB
    ports = []
    for rate in _CLASSES:
        one = replace(
            none,
            pool_nodes=1.0,
            pool_ports=need.pool_ports / need.pool_nodes,
            port_bytes_per_s=rate,
        )
        theirs = replace(none, gpu_node_ports=need.gpu_node_ports, port_bytes_per_s=rate)
        ports.append(
            WhatIfPorts(
                upto_bits_per_s=None if rate == _CLASSES[-1] else rate * _BITS,
                node_usd=asked.usd(one) - fixed,
                gpu_nodes_usd=asked.usd(theirs) - fixed,
            )
        )
    names = [nic_price_name(rate) for rate in _CLASSES]
    here = ports[names.index(nic_price_name(found.port_bits_per_s / _BITS))]
    gb, price = need.pool_dram_bytes / GB, asked.bills.fleet.prices[_DRAM].value
    for dram_usd in (price, 2.0 * price):
        parts = fixed + need.pool_nodes * here.node_usd + here.gpu_nodes_usd
        parts += gb * (gb_free + gb_slope * dram_usd)
        if not math.isclose(parts, asked.usd(need, dram_usd), rel_tol=_CLOSE):
            return False
    found.pool_usd, found.nodes = fixed, need.pool_nodes
    found.node_bytes = need.pool_dram_bytes / need.pool_nodes
    found.ports, found.gb_usd, found.gb_usd_per_dram_usd = ports, gb_free, gb_slope
    return True
