"""Parameters of the queries over sizes and scopes, as the audit beside a dataset took them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kvtrace.api.sizing_params import MEDIA
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import AuditRecord
from kvtrace.audit.sizing.numbers import WORTH_ID
from kvtrace.audit.sizing.record import ResidencyRule, Sizing
from kvtrace.audit.sizing.value import windows_per_month
from kvtrace.audit.thresholds import LINK_BINDS
from kvtrace.duckdb_session import Param

_OF_FLEET: Mapping[str, str] = {
    "pool_nodes": "fleet.pool_nodes",
    "port_bytes_per_s": "fleet.pool_nic_bytes_per_s",
}


def sized_params(earlier: AuditRecord) -> dict[str, Param]:
    """By the name of the parameter; empty for an audit without sizes."""
    sizing = earlier.sizing
    if sizing is None:
        return {}
    stated = {one.id: one.value for one in earlier.assumptions}
    prices = _prices(sizing)
    known: dict[str, Param] = {
        "usd_per_reused_token": _value(
            next((one for one in sizing.numbers if one.id == WORTH_ID), None)
        ),
        "windows_per_month": windows_per_month(earlier.data.span_s),
        "link_limit": LINK_BINDS.value,
        "media": list(MEDIA),
        "media_usd_per_gb_month": [prices.get(medium) for medium in MEDIA],
        "pool_dram_usd_per_gb_month": prices.get("pool_dram"),
        "pool_ssd_usd_per_gb_month": prices.get("pool_ssd"),
        "tiers": [rule.tier for rule in sizing.residency],
        "tiers_until_s": [_until_s(rule) for rule in sizing.residency],
        **{name: stated.get(ident) for name, ident in _OF_FLEET.items()},
    }
    return {name: value for name, value in known.items() if value is not None}


def _prices(sizing: Sizing) -> dict[str, float | None]:
    return {rule.tier: _value(rule.price) for rule in sizing.residency}


def _until_s(rule: ResidencyRule) -> float | None:
    return math.inf if rule.is_endless else _value(rule.residency)


def _value(quantity: Quantity | None) -> float | None:
    value = None if quantity is None else quantity.value
    return float(value) if isinstance(value, int | float) else None
