"""A node's wiring as links and routes: who shares which switch, NIC, drive and memory.

A topology file states what differs from the hardware's own host. From it follow the links of an
instance of TP GPUs (its share of what its node has, and who else uses the same link) and the routes
between HBM and each place where KV may lie. With explicit uplinks the measured slowdown of ranks
that load at once is left out: it holds what a shared uplink does (docs/model/hardware.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal, cast

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.links import Link, list_links, load_link
from kvtrace.replay.scenario import HandoffSpec, LinkSpec, StageSpec
from kvtrace.scenarios.document import Document, Reader
from kvtrace.scenarios.routes import Route
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


@dataclass(frozen=True, slots=True)
class Wired:
    """What a topology means for the instances of a deployment."""

    title: str
    routes: Mapping[str, Route]
    """By path."""
    links: Mapping[str, LinkSpec]
    handoff: HandoffSpec | None
    is_pool_in_gpu_nodes: bool


def wire(document: Document, deployment: Deployment, fleet: Fleet) -> Wired:
    """The links and routes of a topology file.

    Raises:
        UsageError: an unknown key, or a value without a clear unit.
    """
    wiring = read_wiring(document, deployment, fleet)
    links = _links(wiring, deployment, fleet)
    routes = _routes(wiring, deployment, links)
    handoff = None
    if wiring.handoff_over is not None:
        nic = "compute_nic" if wiring.handoff_over == "compute_nics" else "storage_nic"
        latency = deployment.path("pool_rdma_direct").stages[0].latency_s
        handoff = HandoffSpec((nic,), (nic,), latency)
    return Wired(wiring.title, routes, links, handoff, wiring.pool_place == "gpu_nodes")


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


def _links(wiring: Wiring, deployment: Deployment, fleet: Fleet) -> dict[str, LinkSpec]:
    """The links of an instance, and of the whole fleet."""
    tp = deployment.tp
    nodes = -(-tp // wiring.gpus)
    per_node = max(1.0, wiring.gpus / tp)
    fleet_nodes = -(-fleet.instances * tp // wiring.gpus)
    switches = max(1, -(-tp // wiring.gpus_per_switch))
    efficiency = deployment.hardware.load_efficiency.value

    def own(link_id: str, rate: float, shared_by: float = 1.0) -> LinkSpec:
        return LinkSpec(link_id, "instance", rate, ceil(shared_by - 1e-9))

    def nic(link_id: str, nics: Nics, taken: float = 0.0) -> LinkSpec:
        """Ports on a socket serve the whole node; below a switch those next to the GPUs."""
        free = max(0.0, nics.bytes_per_s - taken / nics.ports)
        if nics.placement == "socket":
            return own(link_id, free * nics.ports * nodes, per_node)
        reachable = max(1.0, nics.ports * tp / wiring.gpus)
        return own(link_id, free * reachable, max(1.0, per_node * reachable / nics.ports))

    fabric = wiring.fabric
    made = [
        own("gpu_lanes", wiring.lane_bytes_per_s * tp),
        own(
            "pcie_uplink",
            wiring.uplink_bytes_per_s * efficiency * switches,
            max(1.0, wiring.gpus_per_switch / tp),
        ),
        own("host_dram_read", wiring.dram_read_bytes_per_s * nodes, per_node),
        own("host_dram_write", wiring.dram_write_bytes_per_s * nodes, per_node),
        own("node_nvme", wiring.nvme_bytes_per_s * nodes, per_node),
        own("node_nvme_write", wiring.nvme_write_bytes_per_s * nodes, per_node),
        nic("compute_nic", wiring.compute, wiring.collectives_bytes_per_s),
        LinkSpec(
            "pool_ports", "shared", wiring.pool_node_bytes_per_s * _serving(wiring, fleet_nodes)
        ),
        LinkSpec("all_storage_nics", "shared", fabric.ports * fabric.bytes_per_s * fleet_nodes),
    ]
    if wiring.storage is not None:
        made.append(nic("storage_nic", wiring.storage))
    if wiring.socket_bytes_per_s is not None and wiring.remote_share > 0:
        rate = wiring.socket_bytes_per_s / wiring.remote_share
        made.append(own("socket_link", rate * nodes, per_node))
    return {link.link_id: link for link in made}


def _serving(wiring: Wiring, fleet_nodes: int) -> float:
    """Nodes that serve the pool."""
    return wiring.pool_nodes if wiring.pool_place == "apart" else float(fleet_nodes)


def _routes(
    wiring: Wiring, deployment: Deployment, links: Mapping[str, LinkSpec]
) -> dict[str, Route]:
    """The routes by path; a stage crosses all its links at once."""
    load_s = _latency(deployment, "dram_pcie", "load")
    pull_s = _latency(deployment, "pool_rdma_bounce", "pull")
    direct_s = _latency(deployment, "pool_rdma_direct", "pull")
    first_s = deployment.hardware.nvme.first_byte_s.value
    crossing = ("socket_link",) if "socket_link" in links else ()
    nic = "compute_nic" if wiring.storage is None else "storage_nic"
    onto_host = _via(wiring.fabric.placement == "switch")
    onto_gpu = _via(wiring.fabric.placement == "socket")
    drive_host = _via(wiring.nvme_placement == "switch")
    drive_gpu = _via(wiring.nvme_placement == "socket")
    load = _Way(("pcie_uplink", "gpu_lanes", *crossing), "load", load_s, "host_dram_read")
    landing = "host_dram_write"
    ways: dict[str, tuple[_Way, ...]] = {
        "dram_pcie": (load,),
        "pool_rdma_bounce": (
            _Way(("pool_ports", nic, *onto_host), "pull", pull_s, landing),
            load,
        ),
        "pool_rdma_direct": (_Way(("pool_ports", nic, *onto_gpu, "gpu_lanes"), "pull", direct_s),),
        "pool_via_peers": (
            _Way(
                ("pool_ports", "all_storage_nics", "compute_nic", "gpu_lanes"), "pull", 2 * direct_s
            ),
        ),
        "local_nvme": (_Way(("node_nvme", *drive_host), "pull", first_s, landing), load),
        "local_nvme_direct": (_Way(("node_nvme", *drive_gpu, "gpu_lanes"), "pull", first_s),),
    }
    lookup = dict.fromkeys(ways, deployment.hardware.pool_lookup_s.value)
    lookup |= dict.fromkeys(
        ("dram_pcie", "local_nvme", "local_nvme_direct"), deployment.hardware.dram_lookup_s.value
    )
    return {name: _route(way, lookup[name], links) for name, way in ways.items()}


def _via(is_across: bool) -> tuple[str, ...]:
    """The PCIe switch's uplink, where the bytes cross it."""
    return ("pcie_uplink",) if is_across else ()


@dataclass(frozen=True, slots=True)
class _Way:
    """One stage of a route, reading."""

    links: tuple[str, ...]
    kind: Literal["pull", "load"]
    latency_s: float
    memory: str | None = None
    """Host memory at one end of the stage, as it is used when reading."""


def _route(ways: tuple[_Way, ...], lookup_s: float, links: Mapping[str, LinkSpec]) -> Route:
    turned = {"host_dram_read": "host_dram_write", "host_dram_write": "host_dram_read"}
    turned["node_nvme"] = "node_nvme_write"

    def stage(way: _Way, *, is_read: bool) -> StageSpec:
        ids = (*way.links, *((way.memory,) if way.memory else ()))
        return StageSpec(
            way.kind, ids if is_read else tuple(turned.get(one, one) for one in ids), way.latency_s
        )

    read = tuple(stage(way, is_read=True) for way in ways)
    write = tuple(stage(way, is_read=False) for way in reversed(ways))
    used = {link for one in (*read, *write) for link in one.link_ids}
    is_pool = "pool_ports" in used
    return Route(
        scope="shared" if is_pool else "instance",
        lookup_s=lookup_s,
        read=read,
        write=write,
        links=tuple(link for name, link in links.items() if name in used),
        keeps_one_copy=is_pool,
    )


def _latency(deployment: Deployment, path_id: str, kind: str) -> float:
    """Fixed seconds of the stage of a path."""
    return next(hop.latency_s for hop in deployment.path(path_id).stages if hop.kind == kind)
