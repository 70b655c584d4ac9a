"""Moves of KV between HBM and the tiers below: stages, rates, seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from kvtrace.cost.evidence import Constant
from kvtrace.cost.hardware import HardwareProfile, Network
from kvtrace.errors import UsageError

PathId = Literal["dram_pcie", "pool_tcp", "pool_rdma_bounce", "pool_rdma_direct"]
Direction = Literal["read", "write"]
HopKind = Literal["pull", "load"]
"""pull: over a network, either way; load: between host memory and HBM, either way."""

PATH_IDS: Final[tuple[PathId, ...]] = (
    "dram_pcie",
    "pool_tcp",
    "pool_rdma_bounce",
    "pool_rdma_direct",
)
PATH_TITLES: Final[Mapping[PathId, str]] = MappingProxyType(
    {
        "dram_pcie": "host DRAM, over the host link",
        "pool_tcp": "pool over TCP, through host DRAM",
        "pool_rdma_bounce": "pool over RDMA, through host DRAM",
        "pool_rdma_direct": "pool over RDMA, straight into HBM",
    }
)


@dataclass(frozen=True, slots=True)
class HopLink:
    """A link that a hop crosses, as one instance sees it."""

    link_id: str
    """pcie | nic_tcp | nic_rdma | host_dram_read | host_dram_write."""
    bytes_per_s: float
    """What one instance gets alone, all ranks together."""
    shared_by: float
    """Instances of a node that share it when all move at once."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One serial stage; its bytes cross all its links at once, at the slowest one's rate."""

    kind: HopKind
    links: tuple[HopLink, ...]
    latency_s: float
    """Fixed seconds before the first byte."""

    @property
    def bytes_per_s(self) -> float:
        """Rate of one move alone on its links."""
        return min(link.bytes_per_s for link in self.links)

    def seconds(self, kv_bytes: float) -> float:
        """Seconds of the hop for `kv_bytes` over all ranks."""
        return self.latency_s + kv_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class MovePath:
    """A way of KV between HBM and a tier; serial hops add.

    Assumes: the move is alone on its links; replay shares them.
    """

    path_id: PathId
    direction: Direction
    lookup_s: float
    stages: tuple[Hop, ...]
    evidence: tuple[Constant, ...]

    @property
    def fixed_s(self) -> float:
        """Seconds of a move of zero bytes."""
        return self.lookup_s + math.fsum(hop.latency_s for hop in self.stages)

    @property
    def bytes_per_s(self) -> float:
        """Rate of the whole path, all ranks together, without its fixed seconds."""
        return 1.0 / math.fsum(1.0 / hop.bytes_per_s for hop in self.stages)

    def stage_times(self, kv_bytes: float) -> dict[str, float]:
        """Seconds of `lookup`, `pull` and `load`; a stage that the path lacks takes 0."""
        times = {"lookup": self.lookup_s, "pull": 0.0, "load": 0.0}
        for hop in self.stages:
            times[hop.kind] += hop.seconds(kv_bytes)
        return times

    def pipelined_s(self, kv_bytes: float, *, chunks: float) -> float:
        """Seconds to move `kv_bytes` where each of `chunks` passes a stage behind the one before.

        Formula: lookup + latencies + sum t / K + (1 - 1 / K) max t, t = bytes / rate of a stage,
        K = chunks, at least one; one chunk, or one stage, is the serial move.
        Assumes: reads and writes of host DRAM do not slow each other down.
        """
        times = [kv_bytes / hop.bytes_per_s for hop in self.stages]
        share = 1.0 / max(chunks, 1.0)
        return self.fixed_s + share * math.fsum(times) + (1.0 - share) * max(times, default=0.0)

    def scaled(self, factor: float) -> MovePath:
        """The same path with every link `factor` times as fast; its fixed seconds stay."""
        stages = tuple(
            replace(
                hop,
                links=tuple(
                    replace(link, bytes_per_s=link.bytes_per_s * factor) for link in hop.links
                ),
            )
            for hop in self.stages
        )
        return replace(self, stages=stages)

    def move_s(self, kv_bytes: float) -> float:
        """Seconds to move `kv_bytes` (all ranks, replication included)."""
        return math.fsum(self.stage_times(kv_bytes).values())


def build_path(
    path_id: str, hardware: HardwareProfile, *, tp: int, direction: Direction = "read"
) -> MovePath:
    """The path of an instance of `tp` GPUs.

    Raises:
        UsageError: unknown path id.
    """
    for known in PATH_IDS:
        if known == path_id:
            return _build(known, _Node(hardware, tp), direction)
    raise UsageError(
        "KVT-C050", f"`{path_id}` is not a path", hint=f"use one of {', '.join(PATH_IDS)}"
    )


def _build(path_id: PathId, node: _Node, direction: Direction) -> MovePath:
    hardware = node.hardware
    reading = direction == "read"
    if path_id == "dram_pcie":
        stages: tuple[Hop, ...] = (node.load_hop(reading=reading),)
        lookup, network = hardware.dram_lookup_s, None
    elif path_id == "pool_rdma_direct":
        stages = (node.direct_hop(reading=reading),)
        lookup, network = hardware.pool_lookup_s, hardware.rdma
    else:
        kind = "tcp" if path_id == "pool_tcp" else "rdma"
        network = hardware.tcp if kind == "tcp" else hardware.rdma
        pull = node.pull_hop(network, f"nic_{kind}", reading=reading)
        stages = (pull, node.load_hop(reading=reading))
        lookup = hardware.pool_lookup_s
    used = [lookup, hardware.chunk_bytes]
    if network is not None:
        used += [*network.port.constants(), network.ports_per_node, network.setup_s]
    if path_id != "pool_rdma_direct":
        used += [hardware.load_efficiency, hardware.load_contention]
        used += [hardware.dram_read_bytes_per_s, hardware.dram_write_bytes_per_s]
    used += [*hardware.host_link.constants(), hardware.handover_s]
    return MovePath(
        path_id=path_id,
        direction=direction,
        lookup_s=lookup.value if reading else 0.0,
        stages=stages if reading else stages[::-1],
        evidence=tuple(used),
    )


@dataclass(frozen=True, slots=True)
class _Node:
    """One instance in its node: which links it can use, and who shares them."""

    hardware: HardwareProfile
    tp: int

    @property
    def nodes(self) -> int:
        """Nodes that the instance spans."""
        return -(-self.tp // self.hardware.gpus_per_node)

    @property
    def instances_per_node(self) -> float:
        return max(1.0, self.hardware.gpus_per_node / self.tp)

    def dram(self, *, reading: bool) -> HopLink:
        limit = (
            self.hardware.dram_read_bytes_per_s if reading else self.hardware.dram_write_bytes_per_s
        )
        name = "host_dram_read" if reading else "host_dram_write"
        return HopLink(name, limit.value * self.nodes, self.instances_per_node)

    def host_link(self) -> HopLink:
        return HopLink("pcie", self.hardware.load_bytes_per_s(self.tp), 1.0)

    def nic(self, network: Network, link_id: str) -> HopLink:
        """The ports next to the instance's GPUs; at least one, shared where there are too few."""
        ports = network.ports_per_node.value
        reachable = max(1.0, ports * self.tp / self.hardware.gpus_per_node)
        rate = network.port.bytes_per_s(self.hardware.chunk_bytes.value) * reachable
        return HopLink(link_id, rate, max(1.0, self.instances_per_node * reachable / ports))

    def load_hop(self, *, reading: bool) -> Hop:
        """Host memory to HBM (or back), all ranks at once."""
        latency = self.hardware.host_link.latency_s.value
        if reading:
            latency += self.hardware.handover_s.value
        return Hop("load", (self.host_link(), self.dram(reading=reading)), latency)

    def pull_hop(self, network: Network, link_id: str, *, reading: bool) -> Hop:
        """Pool to host memory (or back): the NICs, and host DRAM at the other end of the copy."""
        latency = network.port.latency_s.value + network.setup_s.value
        return Hop("pull", (self.nic(network, link_id), self.dram(reading=not reading)), latency)

    def direct_hop(self, *, reading: bool) -> Hop:
        """Pool to HBM: the NICs and the GPUs' own lanes, host DRAM left out."""
        network = self.hardware.rdma
        latency = network.port.latency_s.value + network.setup_s.value
        if reading:
            latency += self.hardware.handover_s.value
        lanes = self.hardware.host_link.bytes_per_s(self.hardware.chunk_bytes.value) * self.tp
        return Hop("pull", (self.nic(network, "nic_rdma"), HopLink("pcie", lanes, 1.0)), latency)
