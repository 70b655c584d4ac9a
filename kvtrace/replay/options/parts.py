"""What an option adds below HBM: tiers, their links, and what they need; paths as stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.tco.need import Need
from kvtrace.cost.transfer import Hop, MovePath
from kvtrace.replay.options.ground import Ground, is_given
from kvtrace.replay.scenario import LinkSpec, StageSpec, TierSpec

_NIC_PREFIX: Final = "nic_"
_RDMA_NIC: Final = "nic_rdma"
_TCP_NIC: Final = "nic_tcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The tiers of an option in chain order, the links that they use, and what has to be bought."""

    tiers: tuple[TierSpec, ...] = ()
    links: tuple[LinkSpec, ...] = ()
    need: Need = field(default_factory=Need)


def stages_of(
    path: MovePath, pulled_over: Sequence[str] = (), *, first_byte_s: float = 0.0
) -> tuple[StageSpec, ...]:
    """The stages of a path; `pulled_over`: links at the far end, `first_byte_s`: its first byte."""
    return tuple(_stage(hop, pulled_over, first_byte_s) for hop in path.stages)


def _stage(hop: Hop, pulled_over: Sequence[str], first_byte_s: float) -> StageSpec:
    ids = tuple(link.link_id for link in hop.links)
    if hop.kind != "pull":
        return StageSpec(hop.kind, ids, hop.latency_s)
    return StageSpec(hop.kind, (*ids, *pulled_over), hop.latency_s + first_byte_s)


def links_of(*paths: MovePath) -> list[LinkSpec]:
    """Each link of the paths once; links that several instances of a node share are joint."""
    links: dict[str, LinkSpec] = {}
    for path in paths:
        for hop in path.stages:
            for link in hop.links:
                spec = LinkSpec(link.link_id, "instance", link.bytes_per_s, ceil(link.shared_by))
                links.setdefault(link.link_id, spec)
    return list(links.values())


def on_stated_network(links: Sequence[LinkSpec], ground: Ground) -> list[LinkSpec]:
    """The links with the ports of a GPU node as the fleet file states them, all together.

    A node's ports are one joint link of the instances on it. RDMA goes over the ports between GPUs,
    TCP over those of the front end; where nothing is stated of these, TCP stays as slow as it is,
    and never above what is stated between GPUs.
    """
    deployment, fleet = ground.deployment, ground.fleet
    compute, storage = fleet.node_network_bytes_per_s, fleet.storage_network_bytes_per_s
    nodes = max(1, -(-deployment.tp // fleet.gpus_per_node))
    sharers = max(1, fleet.gpus_per_node // deployment.tp)

    def stated(link: LinkSpec) -> LinkSpec:
        if link.link_id == _TCP_NIC and is_given(storage):
            return replace(link, bytes_per_s=storage.value * nodes, instances_per_link=sharers)
        if not link.link_id.startswith(_NIC_PREFIX) or not is_given(compute):
            return link
        rate = compute.value * nodes
        rate = rate if link.link_id == _RDMA_NIC else min(link.bytes_per_s, rate)
        return replace(link, bytes_per_s=rate, instances_per_link=sharers)

    return [stated(link) for link in links]


def both_ways(deployment: Deployment, path_id: str) -> tuple[MovePath, MovePath]:
    """The path of reads and that of writes."""
    return deployment.path(path_id), deployment.path(path_id, direction="write")
