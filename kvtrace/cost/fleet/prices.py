"""Unit prices: those of data/prices.toml, and in their place what the fleet file states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kvtrace.cost.evidence import Constant, price, read_toml
from kvtrace.units import GB

NIC_PRICES: Final = ("nic_100g_usd", "nic_400g_usd", "nic_800g_usd")
_LARGEST_100G: Final = 25 * GB
_LARGEST_400G: Final = 50 * GB


@dataclass(frozen=True, slots=True)
class Prices:
    """One price a name of `price_names()`."""

    stated: tuple[Constant, ...] = ()
    """What the fleet file states; ids as in data/prices.toml."""

    def __getitem__(self, name: str) -> Constant:
        """The price of this name: as stated, else as published."""
        wanted = f"prices.{name}"
        return next((one for one in self.stated if one.id == wanted), None) or price(name)

    def with_stated(self, constant: Constant) -> Prices:
        """The same prices with this one in place of its namesake."""
        others = tuple(one for one in self.stated if one.id != constant.id)
        return replace(self, stated=(*others, constant))

    def nic(self, line_rate_bytes_per_s: float) -> Constant:
        """USD of one port of this line rate."""
        return self[nic_price_name(line_rate_bytes_per_s)]


def nic_price_name(line_rate_bytes_per_s: float) -> str:
    """Name of the price of a port: the class that its line rate (bytes/s) falls in."""
    small, middle, large = NIC_PRICES
    if line_rate_bytes_per_s <= _LARGEST_100G:
        return small
    return middle if line_rate_bytes_per_s <= _LARGEST_400G else large


REFERENCE_PRICES: Final = frozenset(
    {
        "dram_spot_usd_per_gb",
        "dram_retail_usd_per_gb",
        "dram_pre_shortage_usd_per_gb",
        "nvme_pre_shortage_usd_per_gb",
        "hbm_marginal_usd_per_gb",
        "h100_reserved_usd_per_hour",
        "h100_usd",
        "server_8xh100_usd",
        "server_8xb200_usd",
        "colocation_usd_per_kw_month",
    }
)
"""Published figures to compare with: no bill reads them."""


def price_names() -> tuple[str, ...]:
    """Names that `[prices]` of a fleet file may state beside `gpu_usd_per_hour`: of bills."""
    return tuple(
        one for one in read_toml("prices.toml")["constants"] if one not in REFERENCE_PRICES
    )
