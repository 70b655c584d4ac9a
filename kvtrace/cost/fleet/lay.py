"""What a fleet file states, laid over a fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from kvtrace.cost.evidence import Constant, EvidenceKind
from kvtrace.cost.fleet.answer import Answer
from kvtrace.cost.fleet.fleet import Fleet, Parallel
from kvtrace.cost.fleet.prices import NIC_PRICES, Prices, price_names
from kvtrace.cost.fleet.values import Stated
from kvtrace.cost.slo_target import SloTarget

_OF_FLEET: Final = {
    "pool.nodes": "pool_nodes",
    "pool.dram": "pool_dram_bytes",
    "pool.ports_per_node": "pool_nics_per_node",
    "pool.port_usable_rate": "pool_nic_bytes_per_s",
    "pool.dram_rate": "pool_dram_bytes_per_s",
    "pool.cross_zone_share": "cross_zone_share",
    "network.usable_rate": "node_network_bytes_per_s",
    "instances.dram_free": "dram_idle_bytes_per_instance",
    "instances.dram_room": "dram_room_bytes_per_instance",
    "instances.nvme_free": "nvme_free_bytes_per_instance",
    "releases.days_between": "release_days",
    "redundancy.spare_instances": "spare_instances",
    "redundancy.spare_pool_nodes": "spare_pool_nodes",
    "prices.gpu_usd_per_hour": "gpu_usd_per_hour",
}
_OF_NETWORK: Final = {
    "network.compute_ports": "compute_ports",
    "network.compute_port_rate": "compute_port_bytes_per_s",
    "network.compute_kv_share": "compute_kv_share",
    "network.storage_ports": "storage_ports",
    "network.storage_port_rate": "storage_port_bytes_per_s",
    "network.storage_kv_share": "storage_kv_share",
}
_PER_NODE: Final = {
    "gpu_nodes.dram_free": "dram_idle_bytes_per_instance",
    "gpu_nodes.dram_room": "dram_room_bytes_per_instance",
    "gpu_nodes.nvme_free": "nvme_free_bytes_per_instance",
}
_TOKENS: Final = 1_000
T = TypeVar("T", bound=str | bool)


def lay_over(base: Fleet, stated: Mapping[str, Stated], path: Path) -> Fleet:
    """`base` with what is stated, each number and answer with who stands behind it."""
    fleet = replace(
        base,
        instances=_whole(stated, "instances.count") or base.instances,
        gpus_per_node=_whole(stated, "gpu_nodes.gpus") or base.gpus_per_node,
        parallel=Parallel(
            **{name: _whole(stated, f"instances.{name}") for name in ("tp", "pp", "dp", "ep")}
        ),
        slo=_slo(stated),
        peak_factor=_peak_factor(stated, path),
    )
    fleet = _nodes(fleet, stated, path)
    fleet = _with_network(fleet, stated, path)
    for key, field in _OF_FLEET.items():
        if key in stated:
            fleet = _set(fleet, field, _given(getattr(fleet, field), stated[key], path))
    return _with_prices(_with_port(_with_answers(fleet, stated, path), stated, path), stated, path)


def _set(fleet: Fleet, field: str, constant: Constant) -> Fleet:
    changes: dict[str, Any] = {field: constant}
    return replace(fleet, **changes)


def _whole(stated: Mapping[str, Stated], key: str) -> int | None:
    return None if key not in stated else int(stated[key].amount)


def _given(base: Constant, stated: Stated, path: Path) -> Constant:
    """As stated; a line that nobody confirmed stays an estimate, with the range of its base.

    One that says what would be assumed anyway changes nothing.
    """
    if _says_nothing(base.value, stated):
        return base
    kind, source = _evidence(stated, path)
    given = replace(base.given(stated.amount, source=source), kind=kind, as_of="")
    if stated.low is not None or stated.high is not None:
        return replace(given, low=stated.low, high=stated.high)
    is_inside = (base.low or 0.0) <= given.value and (base.high is None or base.high >= given.value)
    if kind == "assumed" and is_inside:
        return replace(given, low=base.low, high=base.high)
    return given


def _says_nothing(base: float, stated: Stated) -> bool:
    """A line that nobody confirmed, with the value that holds without it."""
    is_plain = stated.low is None and stated.high is None
    is_open = stated.standing == "unconfirmed" and is_plain
    return is_open and math.isclose(base, stated.amount, rel_tol=1e-9)


def _evidence(stated: Stated, path: Path) -> tuple[EvidenceKind, str]:
    if stated.standing == "unconfirmed":
        return "assumed", f"{path.name}, marked unconfirmed there"
    if stated.standing == "logs":
        return "given", f"logs, by {path.name}"
    return "given", path.name


def _nodes(fleet: Fleet, stated: Mapping[str, Stated], path: Path) -> Fleet:
    """Room that is stated for a node is the instance's by its part of the GPUs."""
    part = fleet.gpus_per_instance / fleet.gpus_per_node
    for key, field in _PER_NODE.items():
        if key in stated:
            base = getattr(fleet, field).scaled(1.0 / part)
            fleet = _set(fleet, field, _given(base, stated[key], path).scaled(part))
    return fleet


def _with_network(fleet: Fleet, stated: Mapping[str, Stated], path: Path) -> Fleet:
    """Ports and shares as stated; the usable rate goes with the line rate that KV may use."""
    network = fleet.network
    changes = {
        field: _given(getattr(network, field), stated[key], path)
        for key, field in _OF_NETWORK.items()
        if key in stated
    }
    changed = replace(network, **changes)  # type: ignore[arg-type]
    built = _answer(network.is_built, stated.get("network.is_built"), path)
    changed = replace(changed, is_built=built)
    rates = {
        "compute": (
            fleet.node_network_bytes_per_s,
            _over(changed.compute_bytes_per_s, network.compute_bytes_per_s),
        ),
        "storage": (
            fleet.storage_network_bytes_per_s,
            _over(changed.storage_bytes_per_s, network.storage_bytes_per_s),
        ),
    }
    found = {}
    for kind_of_port, (rate, factor) in rates.items():
        keys = [key for key in _OF_NETWORK if kind_of_port in key and key in stated]
        is_given = any(changes[_OF_NETWORK[key]].kind == "given" for key in keys)
        found[kind_of_port] = rate
        if keys and (factor != 1 or is_given):
            kind, source = _evidence(stated[keys[0]], path)
            found[kind_of_port] = replace(
                rate.scaled(factor), kind=kind, source=f"from the ports of {source}"
            )
    return replace(
        fleet,
        network=changed,
        node_network_bytes_per_s=found["compute"],
        storage_network_bytes_per_s=found["storage"],
    )


def _over(stated: float, base: float) -> float:
    """Ports that the hardware does not have cannot be scaled: 1."""
    return stated / base if base else 1.0


def _with_answers(fleet: Fleet, stated: Mapping[str, Stated], path: Path) -> Fleet:
    until = stated.get("gpu_contract.until")
    contract = replace(
        fleet.contract,
        kind=_answer(fleet.contract.kind, stated.get("gpu_contract.kind"), path),
        until=until.value if until and isinstance(until.value, date) else fleet.contract.until,
    )
    sharing = _answer(fleet.sharing, stated.get("tenants.sharing"), path)
    purchase = _answer(fleet.pool_purchase, stated.get("pool.purchase"), path)
    return replace(
        fleet,
        contract=contract,
        sharing=sharing,
        pool_purchase=purchase,
        below_hbm=_answer(fleet.below_hbm, stated.get("instances.below_hbm"), path),
        today_wire=_answer(fleet.today_wire, stated.get("pool.wire_today"), path),
        dram_used_bytes_per_instance=_dram_used(stated, path),
    )


def _answer(base: Answer[T], stated: Stated | None, path: Path) -> Answer[T]:
    if stated is None:
        return base
    kind, source = _evidence(stated, path)
    return base.given(cast("T", stated.value), kind=kind, source=source)


def _with_port(fleet: Fleet, stated: Mapping[str, Stated], path: Path) -> Fleet:
    """The line rate of a pool port sets its usable rate, unless that is stated, and its price."""
    line, usable = stated.get("pool.port_rate"), stated.get("pool.port_usable_rate")
    if line is not None and _says_nothing(fleet.pool_port_line_bytes_per_s, line):
        line = None
    if line is None:
        if usable is None:
            return fleet
        return replace(fleet, pool_port_line_bytes_per_s=usable.amount)
    changed = replace(fleet, pool_port_line_bytes_per_s=line.amount)
    if usable is not None:
        return changed
    kind, source = _evidence(line, path)
    base = fleet.pool_nic_bytes_per_s
    scaled = base.scaled(line.amount / fleet.pool_port_line_bytes_per_s)
    rate = replace(scaled, kind=kind, source=f"from the line rate of {source}")
    return replace(changed, pool_nic_bytes_per_s=rate)


def _with_prices(fleet: Fleet, stated: Mapping[str, Stated], path: Path) -> Fleet:
    prices = fleet.prices
    for name in price_names():
        key = f"prices.{name}"
        if key in stated:
            base = prices[name]
            given = _given(base, stated[key], path)
            prices = prices if given is base else prices.with_stated(given)
        elif name in NIC_PRICES and "prices.nic_usd_per_port" in stated:
            of_any = stated["prices.nic_usd_per_port"]
            prices = prices.with_stated(_given(prices[name], of_any, path))
    return replace(fleet, prices=_electricity(prices, stated))


def _electricity(prices: Prices, stated: Mapping[str, Stated]) -> Prices:
    """A price that is stated with cooling is that at the meter times the cooling factor."""
    if "prices.electricity_usd_per_kwh" not in stated or "prices.meter_usd_per_kwh" in stated:
        return prices
    cooled, cooling = prices["electricity_usd_per_kwh"], prices["cooling_factor"]
    meter = replace(
        cooled.scaled(1.0 / cooling.value),
        id="prices.meter_usd_per_kwh",
        title=prices["meter_usd_per_kwh"].title,
    )
    exact = replace(cooling, low=None, high=None)
    return prices.with_stated(meter).with_stated(exact)


def _slo(stated: Mapping[str, Stated]) -> SloTarget:
    def seconds(name: str) -> float | None:
        found = stated.get(f"slo.{name}")
        return None if found is None else found.amount

    slope, share = seconds("ttft_per_1k_tokens"), stated.get("slo.share")
    base = seconds("ttft")
    target = SloTarget(
        ttft_s=0.0 if base is None and slope is not None else base,
        ttft_s_per_token=(slope or 0.0) / _TOKENS,
        tpot_s=seconds("tpot"),
        e2e_s=seconds("e2e"),
    )
    return target if share is None else replace(target, share=share.amount)


def _stated_alone(
    stated: Mapping[str, Stated], key: str, path: Path, *, id: str, title: str, unit: str
) -> Constant | None:
    """What the file says of `key`, for which there is no default; None: nothing."""
    found = stated.get(key)
    if found is None:
        return None
    kind, source = _evidence(found, path)
    return Constant(
        id=id,
        title=title,
        value=found.amount,
        unit=unit,
        low=found.low,
        high=found.high,
        kind=kind,
        source=source,
        as_of="",
    )


def _dram_used(stated: Mapping[str, Stated], path: Path) -> Constant | None:
    return _stated_alone(
        stated,
        "instances.dram_used",
        path,
        id="fleet.dram_used_bytes_per_instance",
        title="host DRAM that the running system keeps KV in, per instance",
        unit="B",
    )


def _peak_factor(stated: Mapping[str, Stated], path: Path) -> Constant | None:
    return _stated_alone(
        stated,
        "load.peak_factor",
        path,
        id="fleet.peak_factor",
        title="busiest hour of a busy day over that of the log",
        unit="ratio",
    )
