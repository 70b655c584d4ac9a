"""Assumptions in the shape of the carrying numbers: settings, fleet, prices, constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvtrace.audit.economics import OPERATIONS
from kvtrace.audit.inputs import HARMLESS_SETTINGS, AuditInput, SettingValue
from kvtrace.audit.record import Quantity
from kvtrace.audit.thresholds import (
    FLEET_BUSY_SHARE,
    FLEET_BUSY_SHARE_HIGH,
    FLEET_BUSY_SHARE_LOW,
)
from kvtrace.cost.evidence import Constant

_UNITS = {"instances": "instances", "tp": "GPUs"}


def build_assumptions(inputs: AuditInput) -> list[Quantity]:
    """Settings first (unconfirmed before confirmed), then fleet and prices, then the cost model."""
    settings = [s for s in inputs.settings if s.name not in HARMLESS_SETTINGS]
    settings.sort(key=lambda setting: setting.is_confirmed)
    return list(_unique(_all(inputs, settings)))


def _all(inputs: AuditInput, settings: Iterable[SettingValue]) -> Iterator[Quantity]:
    yield from map(_from_setting, settings)
    yield from map(from_constant, inputs.fleet.constants())
    yield from_constant(OPERATIONS)
    yield Quantity(
        id="fleet_busy_share",
        title="share of its time for which the fleet is kept busy",
        value=FLEET_BUSY_SHARE.value,
        low=FLEET_BUSY_SHARE_LOW.value,
        high=FLEET_BUSY_SHARE_HIGH.value,
        unit="ratio",
        source=FLEET_BUSY_SHARE.source,
        kind="assumed",
        origin="default",
    )
    yield from map(from_constant, inputs.deployment.constants())


def from_constant(constant: Constant) -> Quantity:
    """A constant of the cost model as the record shows it."""
    exact = constant.low is None and constant.high is None
    dated = f"{constant.source} ({constant.as_of})" if constant.as_of else constant.source
    return Quantity(
        id=constant.id,
        title=constant.title,
        value=constant.value,
        low=constant.low,
        high=constant.high,
        unit=constant.unit,
        source=dated,
        kind=constant.kind,
        origin="cost model" if constant.kind != "given" else constant.source,
        interval_reason="taken as exact: no interval is published" if exact else "",
    )


def _from_setting(setting: SettingValue) -> Quantity:
    return Quantity(
        id=setting.name,
        title=setting.name.replace("_", " "),
        value=setting.value,
        unit=_UNITS.get(setting.name, "name"),
        source=f"setting from {setting.origin}",
        kind="given" if setting.is_confirmed else "assumed",
        origin=setting.origin,
        is_confirmed=setting.is_confirmed,
        interval_reason="a setting",
    )


def _unique(quantities: Iterable[Quantity]) -> Iterator[Quantity]:
    seen: set[str] = set()
    for quantity in quantities:
        if quantity.id not in seen:
            seen.add(quantity.id)
            yield quantity
