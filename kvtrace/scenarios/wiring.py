"""A topology file as numbers: what it states of a node, its pool and its network, and the rest.

What a file does not state is the hardware's own host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.links import Link, list_links, load_link
from kvtrace.scenarios.document import Document, Reader
from kvtrace.units import parse_rate

PoolPlace = Literal["apart", "gpu_nodes"]
"""apart: nodes of their own; gpu_nodes: in the GPU nodes' own DRAM, over their NICs both ways."""
_PLACEMENTS: Final = ("switch", "socket")
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "node": (
        *("gpus", "gpus_per_switch", "numa_nodes", "uplink"),
        *("socket_link", "remote_share", "dram_read", "dram_write"),
    ),
    "compute_nics": ("ports", "port", "rate", "placement", "collectives"),
    "storage_nics": ("ports", "port", "rate", "placement"),
    "nvme": ("drives", "rate", "write", "placement"),
    "pool": ("place", "nodes", "ports", "port", "rate", "dram_read"),
    "handoff": ("over",),
}


@dataclass(frozen=True, slots=True)
class Nics:
    """The NICs of one kind in a node."""

    ports: float
    bytes_per_s: float
    """Usable rate of one port, a direction."""
    placement: str
    """switch: below a GPU's PCIe switch; socket: on a CPU's own lanes."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """One node, its pool and its network, in numbers."""

    title: str
    gpus: int
    gpus_per_switch: int
    uplink_bytes_per_s: float
    """Of one PCIe switch to its CPU, a direction."""
    lane_bytes_per_s: float
    """Of one GPU to its switch, a direction."""
    socket_bytes_per_s: float | None
    """Between two sockets, a direction; null: not modelled."""
    remote_share: float
    """Of the bytes between host memory and GPUs that cross the sockets; memory is spread over the
    sockets unless a file says otherwise: (sockets - 1) / sockets."""
    dram_read_bytes_per_s: float
    dram_write_bytes_per_s: float
    compute: Nics
    collectives_bytes_per_s: float
    """What EP collectives take of a node's compute NICs, a direction."""
    storage: Nics | None
    """Null: the pool crosses the compute NICs."""
    nvme_bytes_per_s: float
    nvme_write_bytes_per_s: float
    nvme_placement: str
    pool_place: PoolPlace
    pool_nodes: float
    pool_node_bytes_per_s: float
    """What one pool node serves: the lesser of its ports and its memory."""
    handoff_over: str | None
    """compute_nics | storage_nics: the way of a prompt's KV to its decode instance."""

    @property
    def fabric(self) -> Nics:
        """The NICs to the pool."""
        return self.compute if self.storage is None else self.storage


def read_wiring(document: Document, deployment: Deployment, fleet: Fleet) -> Wiring:
    """The numbers of a topology file; what it does not state is the hardware's own host.

    Raises:
        UsageError: an unknown key, or a value without a clear unit.
    """
    top = Reader(document, document.table)
    top.check(("title", *_SECTIONS))
    part = {name: top.section(name) for name in _SECTIONS}
    for name, allowed in _SECTIONS.items():
        part[name].check(allowed)
    hardware = deployment.hardware
    chunk = hardware.chunk_bytes.value
    node, pool, drive = part["node"], part["pool"], hardware.nvme
    lane = hardware.host_link.bytes_per_s(chunk)
    compute = _nics(part["compute_nics"], deployment, hardware.topology.nic_placement)
    storage = _nics(part["storage_nics"], deployment, "socket") if top.has("storage_nics") else None
    drives = _number(part["nvme"], "drives", hardware.topology.nvme_per_node.value)
    write = drive.write_bytes_per_s or drive.read_bytes_per_s
    fabric = compute if storage is None else storage
    sockets = node.whole("numa_nodes", least=1) if node.has("numa_nodes") else 0
    sockets = sockets or hardware.topology.numa_nodes
    place = pool.word("place", ("apart", "gpu_nodes")) if pool.has("place") else "apart"
    over = part["handoff"]
    return Wiring(
        title=top.word("title") if top.has("title") else document.name,
        gpus=node.whole("gpus", least=1) if node.has("gpus") else hardware.gpus_per_node,
        gpus_per_switch=node.whole("gpus_per_switch", least=1)
        if node.has("gpus_per_switch")
        else max(1, round(hardware.topology.gpus_per_uplink.value)),
        uplink_bytes_per_s=_rate(node, "uplink", lane),
        lane_bytes_per_s=lane,
        socket_bytes_per_s=_rate(node, "socket_link", None),
        remote_share=node.share("remote_share") if node.has("remote_share") else 1 - 1 / sockets,
        dram_read_bytes_per_s=_rate(node, "dram_read", hardware.dram_read_bytes_per_s.value),
        dram_write_bytes_per_s=_rate(node, "dram_write", hardware.dram_write_bytes_per_s.value),
        compute=compute,
        collectives_bytes_per_s=_rate(part["compute_nics"], "collectives", 0.0),
        storage=storage,
        nvme_bytes_per_s=drives * _rate(part["nvme"], "rate", drive.read_bytes_per_s.value),
        nvme_write_bytes_per_s=drives * _rate(part["nvme"], "write", write.value),
        nvme_placement=part["nvme"].word("placement", _PLACEMENTS)
        if part["nvme"].has("placement")
        else hardware.topology.nvme_placement,
        pool_place=cast("PoolPlace", place),
        pool_nodes=_number(pool, "nodes", fleet.pool_nodes.value),
        pool_node_bytes_per_s=min(
            _number(pool, "ports", fleet.pool_nics_per_node.value)
            * _port(pool, fleet.pool_nic_bytes_per_s.value, chunk),
            _rate(pool, "dram_read", fleet.pool_dram_bytes_per_s.value),
        )
        if place == "apart"
        else min(
            fabric.ports * fabric.bytes_per_s,
            _rate(node, "dram_read", hardware.dram_read_bytes_per_s.value),
        ),
        handoff_over=over.word("over", ("compute_nics", "storage_nics"))
        if over.has("over")
        else None,
    )


def _rate(reader: Reader, key: str, default: float | None) -> float:
    """A stated rate, else the default; a null default stays null."""
    return reader.quantity(key, parse_rate) if reader.has(key) else cast("float", default)


def _number(reader: Reader, key: str, default: float) -> float:
    return float(reader.whole(key, least=1)) if reader.has(key) else default


def _nics(reader: Reader, deployment: Deployment, placement: str) -> Nics:
    rdma = deployment.hardware.rdma
    chunk = deployment.hardware.chunk_bytes.value
    return Nics(
        ports=_number(reader, "ports", rdma.ports_per_node.value),
        bytes_per_s=_port(reader, rdma.port.bytes_per_s(chunk), chunk),
        placement=reader.word("placement", _PLACEMENTS) if reader.has("placement") else placement,
    )


def _port(reader: Reader, default: float, chunk: float) -> float:
    """Usable rate of a port: as stated, else of the built-in port nearest to the line rate."""
    if reader.has("rate"):
        return reader.quantity("rate", parse_rate)
    if not reader.has("port"):
        return default
    line = reader.quantity("port", parse_rate)
    if line <= 0:
        return 0.0
    ports = [load_link(name) for name in list_links() if name.startswith("rdma_")]
    nearest = min(ports, key=lambda port: abs(_peak(port) / line - 1))
    return nearest.scaled(line / _peak(nearest)).bytes_per_s(chunk)


def _peak(port: Link) -> float:
    return port.peak_bytes_per_s.value
