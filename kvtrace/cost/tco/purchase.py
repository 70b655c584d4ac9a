"""Lines of what is bought: nodes, DRAM, flash, ports; and what follows from the purchase."""

from __future__ import annotations

from collections.abc import Iterator

from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.bill import BillLine, Group, total
from kvtrace.cost.tco.need import Need
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.units import DAYS_PER_MONTH, GB, MONTHS_PER_YEAR


def bought_lines(need: Need, fleet: Fleet, traffic: Traffic | None) -> list[BillLine]:
    """Everything that is bought for the option; zero lines are left out."""
    lines = [*_nodes(need, fleet), *_ports(need, fleet), *_flash(need, fleet, traffic)]
    return [line for line in lines if line.quantity]


def _nodes(need: Need, fleet: Fleet) -> Iterator[BillLine]:
    node, dram = fleet.prices["pool_node_usd"], fleet.prices["dram_usd_per_gb"]
    is_bought = fleet.pool_purchase.value == "bought"
    if is_bought:
        yield capex("pool_nodes", "pool nodes", "nodes", need.pool_nodes, "nodes", node, fleet)
        yield capex(
            "pool_dram", "DRAM of the pool", "dram", need.pool_dram_bytes / GB, "GB", dram, fleet
        )
    yield capex(
        "gpu_node_dram",
        "DRAM bought for the GPU nodes",
        "dram",
        need.gpu_node_dram_bytes / GB,
        "GB",
        dram,
        fleet,
    )


def _ports(need: Need, fleet: Fleet) -> Iterator[BillLine]:
    """NIC, switch port and both ends of the cable, of each port."""
    rate = need.port_bytes_per_s or fleet.pool_port_line_bytes_per_s
    pool = need.pool_ports if fleet.pool_purchase.value == "bought" else 0.0
    gpus = 0.0 if fleet.network.is_built.value else need.gpu_node_ports
    for place, title, ports in (
        ("pool", "pool nodes", pool),
        ("gpu_node", "GPU nodes", gpus),
    ):
        parts = (
            ("nics", "network ports", 1, fleet.prices.nic(rate)),
            ("switch_ports", "switch ports", 1, fleet.prices["switch_port_usd"]),
            ("optics", "cable ends and optics", 2, fleet.prices["optics_usd_per_end"]),
        )
        for key, what, each, price in parts:
            yield capex(
                f"{place}_{key}",
                f"{what} of {title}",
                "network",
                each * ports,
                "pieces",
                price,
                fleet,
            )


def _flash(need: Need, fleet: Fleet, traffic: Traffic | None) -> Iterator[BillLine]:
    price = fleet.prices["nvme_usd_per_gb"]
    pool = need.pool_ssd_bytes if fleet.pool_purchase.value == "bought" else 0.0
    worn = pool + need.gpu_node_ssd_bytes + need.worn_ssd_bytes
    for key, title, size in (
        ("pool_ssd", "flash of the pool", pool),
        ("gpu_node_ssd", "flash bought for the GPU nodes", need.gpu_node_ssd_bytes),
    ):
        yield capex(key, title, "ssd", size / GB, "GB", price, fleet)
    if worn and traffic is not None:
        yield _worn(worn, fleet, traffic)


def _worn(ssd_bytes: float, fleet: Fleet, traffic: Traffic) -> BillLine:
    """Drives that wear out before they are paid off are bought again.

    Formula: life = capacity x drive writes a day x years x 365 / (written a day x amplification);
    a month costs price x capacity x max(0, 1 / life - 1 / amortisation at its middle).
    """
    prices = fleet.prices
    per_day = Interval.of(prices["ssd_write_amplification"]).scaled(
        traffic.flash_written_bytes_per_day
    )
    endurance = Interval.of(prices["ssd_drive_writes_per_day"]).scaled(
        ssd_bytes * prices["ssd_warranty_years"].value * MONTHS_PER_YEAR * DAYS_PER_MONTH
    )
    lives = (per_day / endurance).scaled(DAYS_PER_MONTH)
    paid_off = 1.0 / prices["amortisation_months"].value
    price = Interval.of(prices["nvme_usd_per_gb"]).scaled(ssd_bytes / GB)
    more = (max(0.0, used - paid_off) for used in (lives.low, lives.value, lives.high))
    share = Interval(*more)
    months = f"{1.0 / lives.value:,.0f} months" if lives.value else "no end"
    return BillLine(
        id="ssd_replacement",
        title="flash worn out before it is paid off",
        group="ssd",
        quantity=traffic.flash_written_bytes_per_day / GB,
        unit="GB/day",
        price=prices["nvme_usd_per_gb"],
        opex_usd_per_month=price * share,
        note=f"life at this load: {months} (endurance and write amplification in the assumptions)",
    )


def capex(
    ident: str,
    title: str,
    group: Group,
    quantity: float,
    unit: str,
    price: Constant,
    fleet: Fleet,
) -> BillLine:
    """A line that is bought once, straight-line over the amortisation."""
    usd = Interval.of(price).scaled(quantity)
    return BillLine(
        id=ident,
        title=title,
        group=group,
        quantity=quantity,
        unit=unit,
        price=price,
        capex_usd=usd,
        capex_usd_per_month=usd / Interval.of(fleet.prices["amortisation_months"]),
    )


def financing_line(lines: list[BillLine], fleet: Fleet) -> BillLine:
    """Interest on what is bought, beyond its straight-line share.

    Formula: capex x (r / (1 - (1 + r)^-n) - 1 / n), r a month, n the amortisation at its middle.
    """
    rate = fleet.prices["financing_rate_per_year"]
    months = fleet.prices["amortisation_months"].value
    paid = total(line.capex_usd for line in lines)
    yearly = Interval.of(rate)
    shares = (_interest_share(one, months) for one in (yearly.low, yearly.value, yearly.high))
    return BillLine(
        id="financing",
        title="financing of the purchase",
        group="financing",
        quantity=paid.value,
        unit="USD",
        price=rate,
        opex_usd_per_month=paid * Interval(*shares),
        note=f"annuity over {months:g} months, less the straight-line share",
    )


def _interest_share(rate_per_year: float, months: float) -> float:
    monthly = rate_per_year / MONTHS_PER_YEAR
    if not monthly:
        return 0.0
    return float(monthly / (1.0 - (1.0 + monthly) ** -months) - 1.0 / months)
