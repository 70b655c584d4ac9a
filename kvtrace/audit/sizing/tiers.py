"""What a GB of each tier costs, and how KV comes back from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.audit.money.economics import range_of
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need, pool_of_fleet
from kvtrace.units import GB, HOURS_PER_MONTH, S_PER_HOUR, TB

_SAMPLE: Final = float(TB)
"""Bytes that a price of a GB is worked out from."""


@dataclass(frozen=True, slots=True)
class TierPrice:
    """One tier: the price of keeping a GB (10^9 bytes) there."""

    tier: str
    title: str
    path_id: str | None
    """How its KV comes back into HBM; null: it is there."""
    usd_per_gb_month: Range | None
    """Null: no price. Zero: it is there and idle."""
    source: str

    @property
    def usd_per_gb_s(self) -> Range | None:
        """The same for one second of a mean month."""
        price = self.usd_per_gb_month
        return None if price is None else price.scaled(1.0 / (HOURS_PER_MONTH * S_PER_HOUR))

    @property
    def is_free(self) -> bool:
        """It is there anyway: keeping a block costs nothing as long as it fits."""
        return self.usd_per_gb_month is not None and self.usd_per_gb_month.high == 0.0


def tier_prices(deployment: Deployment, fleet: Fleet) -> tuple[TierPrice, ...]:
    """All tiers, the nearest first."""
    return tuple(build(deployment, fleet) for build in _TIERS)


def _hbm(deployment: Deployment, fleet: Fleet) -> TierPrice:
    """Formula: price of a GPU-hour x hours of a month / GB of HBM of a GPU."""
    gb = deployment.hardware.gpu.hbm_bytes.value / GB
    return TierPrice(
        "hbm",
        "HBM, at the price of its GPU",
        None,
        range_of(fleet.gpu_usd_per_hour).scaled(HOURS_PER_MONTH / gb),
        f"all of a GPU's price over its {gb:,.0f} GB, as if it were rented for its memory: an "
        "upper bound",
    )


def _idle_dram(deployment: Deployment, fleet: Fleet) -> TierPrice:
    return TierPrice(
        "dram_idle",
        "idle host DRAM, at zero",
        "dram_pcie",
        Range.exact(0.0),
        "it is there and draws its power anyway",
    )


def _bought_dram(deployment: Deployment, fleet: Fleet) -> TierPrice:
    return TierPrice(
        "dram_bought",
        "host DRAM, bought (idle DRAM at cost)",
        "dram_pcie",
        _usd_per_gb(Need(gpu_node_dram_bytes=_SAMPLE), fleet, _SAMPLE),
        "DRAM over its amortisation, financing and power",
    )


def _local_flash(deployment: Deployment, fleet: Fleet) -> TierPrice:
    return TierPrice(
        "nvme",
        "local NVMe, bought",
        "local_nvme",
        _usd_per_gb(Need(gpu_node_ssd_bytes=_SAMPLE), fleet, _SAMPLE),
        "flash over its amortisation, financing and power; wear is not counted",
    )


def _pool_dram(deployment: Deployment, fleet: Fleet) -> TierPrice:
    size = fleet.pool_dram_bytes.value
    need = replace(pool_of_fleet(fleet), is_operated=False)
    return TierPrice(
        "pool_dram",
        "DRAM of a pool",
        "pool_rdma_bounce",
        _usd_per_gb(need, fleet, size) if size else None,
        "nodes, DRAM, ports, financing and power of the fleet's pool over its GB; operations, "
        "which do not grow with it, are left out",
    )


def _pool_flash(deployment: Deployment, fleet: Fleet) -> TierPrice:
    """The nodes and ports of the fleet's pool, with the drives of a pool node in place of DRAM."""
    hardware = deployment.hardware
    drive = hardware.tier(hardware.pool_nvme_tier).capacity_bytes
    drives = hardware.pool_nvme_per_node.value * fleet.pool_nodes.value
    size = 0.0 if drive is None else drives * drive.value
    need = replace(
        pool_of_fleet(fleet), is_operated=False, pool_dram_bytes=0.0, pool_ssd_bytes=size
    )
    return TierPrice(
        "pool_ssd",
        "flash of a pool",
        "pool_ssd",
        _usd_per_gb(need, fleet, size) if size else None,
        "nodes, ports, flash, financing and power of the fleet's pool over the flash of its "
        "drives; operations and wear are left out",
    )


_TIERS: Final[tuple[Callable[[Deployment, Fleet], TierPrice], ...]] = (
    _hbm,
    _idle_dram,
    _bought_dram,
    _local_flash,
    _pool_dram,
    _pool_flash,
)


def _usd_per_gb(need: Need, fleet: Fleet, held_bytes: float) -> Range:
    """The bill of a need over the GB that it holds."""
    cost = build_bill(need, fleet).usd_per_month.scaled(GB / held_bytes)
    return Range(cost.low, cost.value, cost.high)
