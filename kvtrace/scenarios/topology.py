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
from typing import Literal

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.scenario import HandoffSpec, LinkSpec, StageSpec
from kvtrace.scenarios.document import Document
from kvtrace.scenarios.routes import Route
from kvtrace.scenarios.wiring import Nics, Wiring, read_wiring


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


def _links(wiring: Wiring, deployment: Deployment, fleet: Fleet) -> dict[str, LinkSpec]:
    """The links of an instance, and of the whole fleet."""
    tp = deployment.kv_ranks
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
