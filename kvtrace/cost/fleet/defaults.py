"""The fleet where nobody stated one: every number of it is marked as assumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant, read_constant, read_toml
from kvtrace.cost.fleet.answer import Answer
from kvtrace.cost.fleet.fleet import Fleet, GpuContract, Network
from kvtrace.cost.gpus import built_in_hardware, list_gpus
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.hardware import Network as Ports
from kvtrace.cost.interval import Interval
from kvtrace.errors import UsageError
from kvtrace.units import TIB

_GPU_NODES_PER_POOL_NODE: Final = 4
_POOL_DRAM_PER_NODE: Final = 2 * TIB
T = TypeVar("T", bound=str | bool)
_NOBODY: Final = "default of kvtrace; nobody stated it"


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
    usable = _port_rate(port.max_bytes_per_s, port_rate)
    return Fleet(
        instances=instances,
        gpus_per_instance=tp,
        gpus_per_node=hardware.gpus_per_node,
        pool_nodes=_of_pool("pool_nodes", "nodes of the pool", nodes, "nodes", nodes, 2 * nodes),
        pool_dram_bytes=_of_pool(
            "pool_dram_bytes", "DRAM of the pool", nodes * _POOL_DRAM_PER_NODE, "B"
        ),
        pool_nics_per_node=_of_pool("pool_nics_per_node", "ports of a pool node", 2, "ports", 1, 8),
        pool_nic_bytes_per_s=usable,
        pool_port_line_bytes_per_s=port.peak_bytes_per_s.value,
        pool_purchase=_answer("pool.purchase", "how the nodes of a pool are paid", "bought"),
        cross_zone_share=_default("cross_zone_share"),
        pool_dram_bytes_per_s=replace(
            hardware.dram_write_bytes_per_s,
            id="fleet.pool_dram_bytes_per_s",
            title="what a pool node's DRAM serves to its NICs",
            kind="assumed",
            source=f"as a GPU node's: {hardware.dram_write_bytes_per_s.source}",
        ),
        node_network_bytes_per_s=replace(
            usable.scaled(hardware.rdma.ports_per_node.value),
            id="fleet.node_network_bytes_per_s",
            title="usable RDMA rate of a GPU node",
        ),
        storage_network_bytes_per_s=storage_network(hardware),
        dram_idle_bytes_per_instance=_idle_dram(hardware, tp),
        dram_room_bytes_per_instance=_dram_room(hardware, tp),
        nvme_free_bytes_per_instance=_default("nvme_free_bytes_per_instance"),
        network=_network(hardware),
        contract=GpuContract(kind=_answer("gpu_contract.kind", "contract of the GPUs", "elastic")),
        release_days=_default("release_days"),
        spare_instances=_default("spare_instances"),
        spare_pool_nodes=_default("spare_pool_nodes"),
        sharing=_answer(
            "tenants.sharing", "circle within which requests may use each other's KV", "all"
        ),
        gpu_usd_per_hour=hardware.gpu_usd_per_hour,
        gpu_list_usd_per_hour=_list_price(hardware),
    )


def storage_network(hardware: HardwareProfile) -> Constant:
    """Usable TCP rate of all ports of the front end of one node."""
    port = hardware.tcp.port
    limit, usable = port.max_bytes_per_s, port.bytes_per_s(hardware.chunk_bytes.value)
    return replace(
        limit.scaled(hardware.tcp.ports_per_node.value * usable / limit.value),
        id="fleet.storage_network_bytes_per_s",
        title="usable TCP rate of a GPU node",
    )


def _list_price(hardware: HardwareProfile) -> Interval:
    """As published of a built-in GPU; of another one, what its file says."""
    name = hardware.gpu.name
    built_in = built_in_hardware(name) if name in list_gpus() else hardware
    return Interval.of(built_in.gpu_usd_per_hour)


def _network(hardware: HardwareProfile) -> Network:
    compute, storage = hardware.rdma, hardware.tcp
    return Network(
        is_built=_answer(
            "network.is_built", "the network ports that KV needs are there already", True
        ),
        compute_ports=_ports("compute_ports", "ports between GPUs, a node", compute),
        compute_port_bytes_per_s=_line_rate("compute_port_bytes_per_s", compute),
        compute_kv_share=_default("compute_kv_share"),
        storage_ports=_ports("storage_ports", "ports of the front end, a node", storage),
        storage_port_bytes_per_s=_line_rate("storage_port_bytes_per_s", storage),
        storage_kv_share=_default("storage_kv_share"),
    )


def _ports(key: str, title: str, network: Ports) -> Constant:
    """As many as the hardware has, of which nobody said that this fleet has them."""
    count = network.ports_per_node
    return replace(count, id=f"fleet.{key}", title=title, unit="ports", kind="assumed")


def _line_rate(key: str, network: Ports) -> Constant:
    peak = network.port.peak_bytes_per_s
    return replace(peak, id=f"fleet.{key}", title=f"line rate: {peak.title}", kind="assumed")


def _idle_dram(hardware: HardwareProfile, tp: int) -> Constant:
    idle = hardware.dram_bytes_per_node.value * tp / hardware.gpus_per_node
    return replace(
        hardware.dram_idle_share.scaled(idle),
        id="fleet.dram_idle_bytes_per_instance",
        title="host DRAM that is free for KV, per instance",
        unit="B",
    )


def _answer(ident: str, title: str, value: T) -> Answer[T]:
    return Answer(id=ident, title=title, value=value, kind="assumed", source=_NOBODY)


def _dram_room(hardware: HardwareProfile, tp: int) -> Constant:
    """As much again as the nodes have."""
    whole = hardware.dram_bytes_per_node.value * tp / hardware.gpus_per_node
    return Constant(
        id="fleet.dram_room_bytes_per_instance",
        title="host DRAM that could be added, per instance",
        value=whole,
        unit="B",
        low=0.0,
        high=whole,
        kind="assumed",
        source=f"as much again as a node has; {_NOBODY}",
        as_of="2026",
    )


def _default(key: str) -> Constant:
    return read_constant(
        read_toml("fleet.toml")["defaults"][key], id=f"fleet.{key}", source=_NOBODY, as_of="2026"
    )


def _of_pool(
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
