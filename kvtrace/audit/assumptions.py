"""Assumptions in the shape of the carrying numbers: settings, fleet, prices, constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kvtrace.audit.inputs import HARMLESS_SETTINGS, AuditInput, SettingValue
from kvtrace.audit.record import OriginState, Quantity
from kvtrace.audit.thresholds import (
    FLEET_BUSY_SHARE,
    FLEET_BUSY_SHARE_HIGH,
    FLEET_BUSY_SHARE_LOW,
)
from kvtrace.cost.evidence import Constant, EvidenceKind
from kvtrace.cost.fleet import AnyAnswer
from kvtrace.cost.hardware_file.calibration import CALIBRATED

_UNITS: Final = {"instances": "instances", "tp": "GPUs"}
_OF_THIS_INSTANCE: Final = "instance."
"""Constants that the service's own logs printed."""
_OF_MONEY: Final = ("prices.", "fleet.", "network.", "gpu_contract.", "pool.", "tenants.")
_STATE: Final[dict[EvidenceKind, OriginState]] = {
    "given": "stated",
    "spec": "public",
    "measured": "public",
    "fitted": "fitted",
    "assumed": "estimated",
}
_HEAVIEST: Final = (
    "fleet.pool_nodes",
    "fleet.pool_dram_bytes",
    "fleet.pool_nics_per_node",
    "prices.gpu_usd_per_hour",
    "prices.operations_fte_share",
    "prices.fte_usd_per_year",
    FLEET_BUSY_SHARE.id,
    "fleet.dram_idle_bytes_per_instance",
    "moves.dram_idle_share",
)
"""Pool size, then money, then the rival of the pool: what the verdict changes with first."""


def build_assumptions(inputs: AuditInput, prices: Sequence[Constant] = ()) -> list[Quantity]:
    """What weighs most first: estimates before what is confirmed; in both, pool and money first.

    `prices`: those that stand in a bill.
    """
    settings = [s for s in inputs.settings if s.name not in HARMLESS_SETTINGS]
    names = {setting.name for setting in settings}
    found = list(_unique(_all(inputs, settings, prices)))
    return sorted(found, key=lambda one: (one.is_confirmed, *_weight(one.id, names)))


def _weight(ident: str, settings: set[str]) -> tuple[int, int]:
    """Smaller weighs more: the heaviest, settings, other prices, the rest; else as given."""
    if ident in _HEAVIEST:
        return 0, _HEAVIEST.index(ident)
    if ident in settings:
        return 1, 0
    return (2, 0) if ident.startswith(_OF_MONEY) else (3, 0)


def _all(
    inputs: AuditInput, settings: Iterable[SettingValue], prices: Sequence[Constant]
) -> Iterator[Quantity]:
    yield from map(_from_setting, settings)
    yield from map(from_constant, inputs.fleet.constants())
    yield from map(_from_answer, inputs.fleet.answers())
    yield from map(from_constant, prices)
    yield Quantity(
        id=FLEET_BUSY_SHARE.id,
        title="share of its time for which the fleet is kept busy",
        value=FLEET_BUSY_SHARE.value,
        low=FLEET_BUSY_SHARE_LOW.value,
        high=FLEET_BUSY_SHARE_HIGH.value,
        unit="ratio",
        source=FLEET_BUSY_SHARE.source,
        kind="assumed",
        origin="default",
        origin_state="estimated",
        is_confirmed=False,
    )
    yield from map(from_constant, inputs.deployment.constants())
    if inputs.fleet.slo.is_of_a_client:
        yield from map(from_constant, inputs.deployment.front_evidence)


def from_constant(constant: Constant) -> Quantity:
    """A constant of the cost model as the record shows it."""
    exact = constant.low is None and constant.high is None
    dated = f"{constant.source} ({constant.as_of})" if constant.as_of else constant.source
    state = _STATE[constant.kind]
    if constant.kind == "measured" and constant.id.startswith(_OF_THIS_INSTANCE):
        state = "logs"
    if constant.kind == "given" and constant.source.startswith("logs"):
        state = "logs"
    if constant.kind == "fitted" and constant.source.startswith(CALIBRATED):
        state = "calibrated"
    origins = {"stated": constant.source, "logs": "logs", "calibrated": CALIBRATED}
    return Quantity(
        id=constant.id,
        title=constant.title,
        value=constant.value,
        low=constant.low,
        high=constant.high,
        unit=constant.unit,
        source=dated,
        kind=constant.kind,
        origin=origins.get(state, "cost model"),
        origin_state=state,
        is_confirmed=state != "estimated",
        interval_reason="taken as exact: no interval is published" if exact else "",
    )


def _from_answer(answer: AnyAnswer) -> Quantity:
    value = answer.value
    is_confirmed = answer.kind != "assumed"
    return Quantity(
        id=answer.id,
        title=answer.title,
        value={True: "yes", False: "no"}[value] if isinstance(value, bool) else value,
        unit="answer",
        source=answer.source,
        kind=answer.kind,
        origin=answer.source if is_confirmed else "cost model",
        origin_state="stated" if is_confirmed else "estimated",
        is_confirmed=is_confirmed,
        interval_reason="an answer",
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
        origin_state=_state_of(setting),
        is_confirmed=setting.is_confirmed,
        interval_reason="a setting",
    )


def _state_of(setting: SettingValue) -> OriginState:
    if not setting.is_confirmed:
        return "estimated"
    return "logs" if setting.origin == "logs" else "stated"


def _unique(quantities: Iterable[Quantity]) -> Iterator[Quantity]:
    seen: set[str] = set()
    for quantity in quantities:
        if quantity.id not in seen:
            seen.add(quantity.id)
            yield quantity
