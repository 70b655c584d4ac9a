"""Parameters of the queries over sizes and scopes: what a token is worth, what tiers cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kvtrace.audit.sizing.residency import Rule, residency_rules
from kvtrace.audit.sizing.tiers import tier_prices
from kvtrace.audit.sizing.value import windows_per_month
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.thresholds import LINK_BINDS, LITTLE
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.duckdb_session import Param

MEDIA: Final = ("pool_dram", "pool_ssd")
CLASSES: Final = ("hot: HBM", "warm: idle DRAM", "cold: pool", "beyond: recompute")


def held_bytes(tiers: Iterable[float]) -> float:
    """Distinct bytes above a pool: of the largest tier, as each keeps copies of those above it.

    The tiers of the replayed options do (`inclusion = "inclusive"`), so that a pool adds here what
    it adds there.
    """
    return max(tiers, default=0.0)


def sizing_params(
    deployment: Deployment,
    fleet: Fleet,
    value: ReuseValue | None,
    span_s: float | None,
    sizes: Mapping[str, Param],
) -> dict[str, Param]:
    """By the name of the parameter; null: unknown. `sizes`: bytes of the tiers, fleet-wide."""
    token_bytes = deployment.kv_bytes_per_token_unreplicated
    rules = residency_rules(tier_prices(deployment, fleet), value, token_bytes)
    by_tier = {rule.price.tier: rule for rule in rules}
    hbm, dram = (_bytes(sizes, name) for name in ("hbm_bytes", "dram_bytes"))
    pool = _bytes(sizes, "pool_bytes")
    prices = [_per_gb(by_tier[medium]) for medium in MEDIA]
    usd = None if value is None else value.usd_per_token
    return {
        "usd_per_reused_token": None if usd is None else usd.value,
        "windows_per_month": windows_per_month(span_s),
        "held_bytes": held_bytes((hbm, dram)),
        "pool_nodes": fleet.pool_nodes.value,
        "port_bytes_per_s": fleet.pool_nic_bytes_per_s.value,
        "link_limit": LINK_BINDS.value,
        "little_ratio_tokens": LITTLE.value,
        "media": list(MEDIA),
        "media_usd_per_gb_month": prices,
        "pool_dram_usd_per_gb_month": prices[0],
        "pool_ssd_usd_per_gb_month": prices[1],
        "tiers": list(by_tier),
        "tiers_until_s": [rule.until_s for rule in rules],
        "classes": list(CLASSES),
        "classes_bytes": [hbm, dram, pool, None],
        "classes_until_s": [None, None, by_tier["pool_dram"].until_s, None],
    }


def _bytes(sizes: Mapping[str, Param], name: str) -> float:
    size = sizes.get(name)
    return float(size) if isinstance(size, int | float) else 0.0


def _per_gb(rule: Rule) -> float | None:
    price = rule.price.usd_per_gb_month
    return None if price is None else price.value
