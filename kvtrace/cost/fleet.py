"""The fleet and what a pool beside it costs a month."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Literal

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant, number, price, read_user_toml
from kvtrace.errors import Location, UsageError
from kvtrace.units import GB, HOURS_PER_MONTH, TIB, parse_bytes, parse_rate

Bound = Literal["low", "mid", "high"]
_CostAt = Callable[[Bound], float]

_GPU_NODES_PER_POOL_NODE: Final = 4
_POOL_DRAM_PER_NODE: Final = 2 * TIB
_WATTS_PER_KILOWATT: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """The instances, the pool that is considered for them, and the prices of both."""

    instances: int
    gpus_per_instance: int
    gpus_per_node: int
    pool_nodes: Constant
    pool_dram_bytes: Constant
    """Of all pool nodes together."""
    pool_nics_per_node: Constant
    pool_nic_bytes_per_s: Constant
    """Usable rate of one pool port."""
    pool_dram_bytes_per_s: Constant
    """What one pool node's DRAM can serve to its NICs."""
    node_network_bytes_per_s: Constant
    """Usable RDMA rate of one GPU node, all its ports together."""
    dram_idle_bytes_per_instance: Constant
    gpu_usd_per_hour: Constant
    dram_usd_per_gb: Constant
    nic_usd_per_port: Constant
    switch_port_usd: Constant
    optics_usd_per_end: Constant
    pool_node_usd: Constant
    pool_node_watts: Constant
    dram_watts_per_gb: Constant
    electricity_usd_per_kwh: Constant
    amortisation_months: Constant

    @property
    def gpus(self) -> int:
        """GPUs of all instances."""
        return self.instances * self.gpus_per_instance

    @property
    def gpu_nodes(self) -> int:
        """Nodes that hold them."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def pool_bytes_per_s(self) -> float:
        """What all pool nodes together can serve: the lesser of NICs and DRAM."""
        nics = self.pool_nics_per_node.value * self.pool_nic_bytes_per_s.value
        return self.pool_nodes.value * min(nics, self.pool_dram_bytes_per_s.value)

    def constants(self) -> tuple[Constant, ...]:
        """All numbers of the fleet."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(value for value in values if isinstance(value, Constant))


@dataclass(frozen=True, slots=True)
class MonthlyCost:
    """USD a month: from all low ends, from the values, from all high ends."""

    low: float
    mid: float
    high: float


def default_fleet(deployment: Deployment, instances: int) -> Fleet:
    """A fleet of `instances`, with a dedicated DRAM pool of one node per four GPU nodes.

    Assumes: at least two pool nodes, so that one may fail; 2 TiB and two ports each.

    Raises:
        UsageError: no instance.
    """
    if instances < 1:
        raise UsageError("KVT-C080", f"{instances} instances are not a fleet", hint="use 1 or more")
    hardware, tp = deployment.hardware, deployment.kv_ranks
    gpu_nodes = -(-instances * tp // hardware.gpus_per_node)
    nodes = max(2, -(-gpu_nodes // _GPU_NODES_PER_POOL_NODE))
    port = hardware.rdma.port
    port_rate = port.bytes_per_s(hardware.chunk_bytes.value)
    idle = hardware.dram_bytes_per_node.value * tp / hardware.gpus_per_node
    share = hardware.dram_idle_share
    line_rate = port.peak_bytes_per_s.value
    return Fleet(
        instances=instances,
        gpus_per_instance=tp,
        gpus_per_node=hardware.gpus_per_node,
        pool_nodes=_assumed("pool_nodes", "nodes of the pool", nodes, "nodes", nodes, 2 * nodes),
        pool_dram_bytes=_assumed(
            "pool_dram_bytes", "DRAM of the pool", nodes * _POOL_DRAM_PER_NODE, "B"
        ),
        pool_nics_per_node=_assumed("pool_nics_per_node", "ports of a pool node", 2, "ports", 1, 8),
        pool_nic_bytes_per_s=_port_rate(port.max_bytes_per_s, port_rate),
        pool_dram_bytes_per_s=replace(
            hardware.dram_write_bytes_per_s,
            id="fleet.pool_dram_bytes_per_s",
            title="what a pool node's DRAM serves to its NICs",
            kind="assumed",
            source=f"as a GPU node's: {hardware.dram_write_bytes_per_s.source}",
        ),
        node_network_bytes_per_s=replace(
            _port_rate(port.max_bytes_per_s, port_rate).scaled(hardware.rdma.ports_per_node.value),
            id="fleet.node_network_bytes_per_s",
            title="usable RDMA rate of a GPU node",
        ),
        dram_idle_bytes_per_instance=replace(
            share.scaled(idle),
            id="fleet.dram_idle_bytes_per_instance",
            title="host DRAM that is free for KV, per instance",
            unit="B",
        ),
        gpu_usd_per_hour=hardware.gpu_usd_per_hour,
        dram_usd_per_gb=price("dram_usd_per_gb"),
        nic_usd_per_port=price(_nic_price(line_rate)),
        switch_port_usd=price("switch_port_usd"),
        optics_usd_per_end=price("optics_usd_per_end"),
        pool_node_usd=price("pool_node_usd"),
        pool_node_watts=price("pool_node_watts"),
        dram_watts_per_gb=price("dram_watts_per_gb"),
        electricity_usd_per_kwh=price("electricity_usd_per_kwh"),
        amortisation_months=price("amortisation_months"),
    )


def pool_usd_per_month(fleet: Fleet) -> MonthlyCost:
    """The pool's hardware, amortised, and its power.

    Formula: (nodes x node + GB x DRAM + ports x (NIC + switch port + 2 ends)) / months
        + (nodes x W + GB x W/GB) x hours x USD/kWh
    """
    return _over_bounds(lambda bound: _pool_usd(fleet, bound))


def dram_usd_per_month(fleet: Fleet, dram_bytes: float) -> MonthlyCost:
    """DRAM bought for the GPU nodes, amortised, and its power."""
    return _over_bounds(
        lambda bound: (
            _dram_capex_usd(fleet, dram_bytes, bound) / _months(fleet, bound)
            + _power_usd(fleet, _dram_watts(fleet, dram_bytes, bound), bound)
        )
    )


def gpu_usd_per_month(fleet: Fleet, gpus: float | None = None) -> MonthlyCost:
    """GPUs by the hour, for a mean month; all of the fleet unless told."""
    count = fleet.gpus if gpus is None else gpus
    return _over_bounds(lambda bound: count * _at(fleet.gpu_usd_per_hour, bound) * HOURS_PER_MONTH)


def load_fleet(path: Path | str, base: Fleet) -> Fleet:
    """`base` with what a user's TOML states: `instances`, and any constant by its name.

    A value is a number, a quantity with its unit (bytes and rates), or a table of value, low, high.

    Raises:
        UsageError: unreadable, an unknown key (with close ones), or a value that cannot be used.
    """
    path = Path(path)
    return fleet_of(read_user_toml(path), base, path)


def fleet_of(document: Mapping[str, object], base: Fleet, path: Path) -> Fleet:
    """`base` with what such a document states; `path` is where it stands.

    Raises:
        UsageError: as `load_fleet`.
    """
    names = {field.name for field in fields(Fleet)}
    changes: dict[str, int | Constant] = {}
    for key, raw in document.items():
        if key not in names:
            raise _fleet_fault(path, f"unknown key `{key}`{_meant(key, names)}")
        current = getattr(base, key)
        try:
            if isinstance(current, Constant):
                changes[key] = _given(current, raw, str(path))
            else:
                count = number(raw)
                if count < 1 or count != int(count):
                    raise ValueError("not a whole number above zero")
                changes[key] = int(count)
        except ValueError as error:
            raise _fleet_fault(path, f"`{key}`: {error}") from error
    return replace(base, **changes)  # type: ignore[arg-type]


def _given(current: Constant, raw: object, source: str) -> Constant:
    if isinstance(raw, Mapping):
        value = _quantity(raw.get("value"), current.unit)
        low, high = raw.get("low"), raw.get("high")
        return replace(
            current.given(value, source=source),
            low=None if low is None else _quantity(low, current.unit),
            high=None if high is None else _quantity(high, current.unit),
        )
    return current.given(_quantity(raw, current.unit), source=source)


def _quantity(raw: object, unit: str) -> float:
    if unit in ("B", "B/s"):
        if not isinstance(raw, str):
            raise ValueError("write it as a string with its unit, such as `2TiB` or `400Gb/s`")
        return float(parse_bytes(raw) if unit == "B" else parse_rate(raw))
    value = number(raw)
    if value < 0:
        raise ValueError("below zero")
    return value


def _meant(key: str, names: set[str]) -> str:
    import difflib

    close = difflib.get_close_matches(key, sorted(names), n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(sorted(names))}"


def _fleet_fault(path: Path, cause: str) -> UsageError:
    return UsageError(
        "KVT-C081", f"`{path}` is not a usable fleet file", where=Location(str(path)), cause=cause
    )


def _assumed(
    key: str,
    title: str,
    value: float,
    unit: str,
    low: float | None = None,
    high: float | None = None,
) -> Constant:
    return Constant(
        id=f"fleet.{key}",
        title=title,
        value=float(value),
        unit=unit,
        low=None if low is None else float(low),
        high=None if high is None else float(high),
        kind="assumed",
        source="default pool of kvtrace: one node per four GPU nodes, at least two",
        as_of="2026",
    )


def _port_rate(limit: Constant, rate: float) -> Constant:
    return replace(
        limit.scaled(rate / limit.value),
        id="fleet.pool_nic_bytes_per_s",
        title="usable rate of a pool port",
    )


def _nic_price(line_rate: float) -> str:
    gigabytes = line_rate / GB
    return (
        "nic_100g_usd" if gigabytes <= 25 else "nic_400g_usd" if gigabytes <= 50 else "nic_800g_usd"
    )


def _at(constant: Constant, bound: Bound) -> float:
    chosen = {"low": constant.low, "mid": constant.value, "high": constant.high}[bound]
    return constant.value if chosen is None else chosen


def _over_bounds(cost: _CostAt) -> MonthlyCost:
    return MonthlyCost(low=cost("low"), mid=cost("mid"), high=cost("high"))


def _months(fleet: Fleet, bound: Bound) -> float:
    """Cheap is slow to amortise."""
    opposite: dict[Bound, Bound] = {"low": "high", "mid": "mid", "high": "low"}
    return _at(fleet.amortisation_months, opposite[bound])


def _dram_capex_usd(fleet: Fleet, dram_bytes: float, bound: Bound) -> float:
    return dram_bytes / GB * _at(fleet.dram_usd_per_gb, bound)


def _dram_watts(fleet: Fleet, dram_bytes: float, bound: Bound) -> float:
    return dram_bytes / GB * _at(fleet.dram_watts_per_gb, bound)


def _power_usd(fleet: Fleet, watts: float, bound: Bound) -> float:
    kilowatt_hours = watts / _WATTS_PER_KILOWATT * HOURS_PER_MONTH
    return kilowatt_hours * _at(fleet.electricity_usd_per_kwh, bound)


def _pool_usd(fleet: Fleet, bound: Bound) -> float:
    """The pool as sized: prices vary over the bounds, its size does not."""
    nodes, dram_bytes = fleet.pool_nodes.value, fleet.pool_dram_bytes.value
    port_usd = math.fsum(
        (
            _at(fleet.nic_usd_per_port, bound),
            _at(fleet.switch_port_usd, bound),
            2 * _at(fleet.optics_usd_per_end, bound),
        )
    )
    capex = math.fsum(
        (
            nodes * _at(fleet.pool_node_usd, bound),
            _dram_capex_usd(fleet, dram_bytes, bound),
            nodes * fleet.pool_nics_per_node.value * port_usd,
        )
    )
    watts = nodes * _at(fleet.pool_node_watts, bound) + _dram_watts(fleet, dram_bytes, bound)
    return capex / _months(fleet, bound) + _power_usd(fleet, watts, bound)
