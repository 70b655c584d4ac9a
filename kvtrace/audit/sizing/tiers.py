"""What a GB of each tier costs, and how KV comes back from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.money.economics import range_of
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet, MonthlyCost, dram_usd_per_month, pool_usd_per_month
from kvtrace.units import GB, HOURS_PER_MONTH, S_PER_HOUR

_TB: Final = 1000.0
_W_PER_KW: Final = 1000.0


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
        _range(dram_usd_per_month(fleet, GB)),
        "DRAM over its amortisation, and its power",
    )


def _local_flash(deployment: Deployment, fleet: Fleet) -> TierPrice:
    return TierPrice(
        "nvme",
        "local NVMe, bought",
        "local_nvme",
        _flash_usd_per_gb(fleet),
        "flash over its amortisation, and its power; wear is not counted",
    )


def _pool_dram(deployment: Deployment, fleet: Fleet) -> TierPrice:
    gb = fleet.pool_dram_bytes.value / GB
    return TierPrice(
        "pool_dram",
        "DRAM of a pool",
        "pool_rdma_bounce",
        _range(pool_usd_per_month(fleet)).scaled(1.0 / gb) if gb else None,
        "nodes, DRAM, ports and power of the fleet's pool over its GB; operations, which do not "
        "grow with it, are left out",
    )


def _pool_flash(deployment: Deployment, fleet: Fleet) -> TierPrice:
    return TierPrice(
        "pool_ssd",
        "flash of a pool",
        "pool_ssd",
        _flash_usd_per_gb(fleet),
        "flash over its amortisation, and its power; nodes, ports and wear are left out: a lower "
        "bound",
    )


_TIERS: Final[tuple[Callable[[Deployment, Fleet], TierPrice], ...]] = (
    _hbm,
    _idle_dram,
    _bought_dram,
    _local_flash,
    _pool_dram,
    _pool_flash,
)


def _flash_usd_per_gb(fleet: Fleet) -> Range:
    """Formula: price / months + W per GB x hours x USD/kWh."""

    def price(name: str) -> Constant:
        return fleet.prices[name]

    bought = range_of(price("nvme_usd_per_gb")) / range_of(price("amortisation_months"))
    power = range_of(price("nvme_watts_per_tb")) * range_of(price("electricity_usd_per_kwh"))
    return bought + power.scaled(HOURS_PER_MONTH / _W_PER_KW / _TB)


def _range(cost: MonthlyCost) -> Range:
    return Range(cost.low, cost.mid, cost.high)
