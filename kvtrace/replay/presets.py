"""The options that every audit compares, as scenarios of one deployment and one fleet.

All options share the LLM, the instances and the HBM left for KV; they differ in the tiers below HBM
and in the path to them. Requests go to the least loaded instance; the options named `kv_routing`
buy nothing either, but send them where queue, move and recompute together take least. A pooled
option has HBM and the pool, no local DRAM tier: what the pool adds is then not mixed with what idle
DRAM gives for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Final, NamedTuple

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.transfer import Hop, MovePath
from kvtrace.replay.scenario import LinkSpec, LoadDecision, Routing, Scenario, StageSpec, TierSpec


class _PoolOption(NamedTuple):
    option_id: str
    path_id: str
    nic: str
    """The link of the path that leaves the node; the pool's own ports face it."""
    title: str


_POOL_OPTIONS: Final = (
    _PoolOption("pool_dram_tcp", "pool_tcp", "nic_tcp", "DRAM pool over TCP"),
    _PoolOption(
        "pool_dram_rdma_bounce",
        "pool_rdma_bounce",
        "nic_rdma",
        "DRAM pool over RDMA, host bounce",
    ),
    _PoolOption(
        "pool_dram_rdma_direct",
        "pool_rdma_direct",
        "nic_rdma",
        "DRAM pool over RDMA, GPU-direct",
    ),
)


def with_arbiter(scenario: Scenario) -> Scenario:
    """The same option with an arbiter: it loads only what is priced below recomputing it.

    Its id stays: `load_decision` tells the two apart.
    """
    return replace(scenario, load_decision="arbiter", title=f"{scenario.title}, arbiter")


def build_scenarios(
    deployment: Deployment,
    fleet: Fleet,
    *,
    load_decision: LoadDecision = "always",
) -> tuple[Scenario, ...]:
    """The options: `recompute`, HBM and idle DRAM by either routing, and three `pool_dram_*`.

    Raises:
        ModelError: the LLM does not fit, or its FLOPs are not known.
    """
    step = deployment.step

    def scenario(
        option_id: str,
        title: str,
        tiers: tuple[TierSpec, ...] = (),
        links: Sequence[LinkSpec] = (),
        *,
        reuse: bool = True,
        routing: Routing = "least_loaded",
    ) -> Scenario:
        return Scenario(
            option_id=option_id,
            title=title,
            instances=fleet.instances,
            kv_bytes_per_token=deployment.kv_bytes_per_token,
            hbm_capacity_bytes=deployment.group_cache_bytes,
            tiers=tiers,
            links={link.link_id: link for link in links},
            prefill=deployment.prefill,
            decode=deployment.decode,
            load_decision=load_decision,
            reuse=reuse,
            routing=routing,
            prefill_chunk_tokens=deployment.prefill_chunk_tokens,
            running_requests=deployment.measured_running_requests or 0,
            step=step,
            stages=deployment.pp,
        )

    dram, dram_links = _dram_tier(deployment, fleet)
    return (
        scenario("recompute", "Recompute everything", reuse=False),
        scenario("hbm_only", "HBM only"),
        scenario("kv_routing", "KV-centric routing", routing="kv_centric"),
        scenario("dram_idle", "Idle host DRAM", (dram,), dram_links),
        scenario(
            "dram_idle_kv_routing",
            "Idle host DRAM, KV-centric routing",
            (dram,),
            dram_links,
            routing="kv_centric",
        ),
        *(
            scenario(option.option_id, option.title, *_pool_tier(deployment, fleet, option))
            for option in _POOL_OPTIONS
        ),
    )


def _dram_tier(deployment: Deployment, fleet: Fleet) -> tuple[TierSpec, list[LinkSpec]]:
    """Host DRAM that is free for KV, private to each instance."""
    read = deployment.path("dram_pcie")
    write = deployment.path("dram_pcie", direction="write")
    tier = TierSpec(
        tier_id="host_dram",
        scope="instance",
        capacity_bytes=fleet.dram_idle_bytes_per_instance.value,
        lookup_s=read.lookup_s,
        read=_stages(read),
        write=_stages(write),
    )
    return tier, _links(read, write)


def _pool_tier(
    deployment: Deployment, fleet: Fleet, option: _PoolOption
) -> tuple[tuple[TierSpec], list[LinkSpec]]:
    """DRAM of the pool nodes, shared by the fleet; it keeps one copy of what ranks replicate.

    The hops that leave the node also cross the pool's ports, all of them together.
    """
    read = deployment.path(option.path_id)
    write = deployment.path(option.path_id, direction="write")
    pool_nic = LinkSpec(
        f"pool_{option.nic}", "shared", _pool_bytes_per_s(deployment, fleet, option)
    )
    tier = TierSpec(
        tier_id="pool",
        scope="shared",
        capacity_bytes=fleet.pool_dram_bytes.value,
        lookup_s=read.lookup_s,
        read=_stages(read, pool_nic.link_id),
        write=_stages(write, pool_nic.link_id),
        stored_bytes_per_token=deployment.kv_bytes_per_token_unreplicated,
    )
    return (tier,), [*_on_stated_network(_links(read, write), deployment, fleet), pool_nic]


def _on_stated_network(
    links: Sequence[LinkSpec], deployment: Deployment, fleet: Fleet
) -> list[LinkSpec]:
    """The links with the ports of a GPU node as the fleet file states them, all together.

    A node's ports are one joint link of the instances on it; TCP stays slower where it is.
    """
    stated = fleet.node_network_bytes_per_s
    if stated.kind != "given":
        return list(links)
    rate = stated.value * max(1, -(-deployment.tp // fleet.gpus_per_node))
    sharers = max(1, fleet.gpus_per_node // deployment.tp)
    return [
        replace(
            link,
            bytes_per_s=rate if link.link_id == "nic_rdma" else min(link.bytes_per_s, rate),
            instances_per_link=sharers,
        )
        if link.link_id.startswith("nic_")
        else link
        for link in links
    ]


def _pool_bytes_per_s(deployment: Deployment, fleet: Fleet, option: _PoolOption) -> float:
    """What all pool nodes together serve on this path.

    Formula: RDMA: nodes · min(ports · port rate, DRAM rate). TCP: the port rate is the one that a
    GPU node's TCP port reaches, but never more than over RDMA.
    Assumes: the blocks of a request lie spread over all pool nodes, so that one load may use every
    port.
    """
    if option.nic != "nic_tcp":
        return fleet.pool_bytes_per_s
    hardware = deployment.hardware
    port = hardware.tcp.port.bytes_per_s(hardware.chunk_bytes.value)
    ports = fleet.pool_nodes.value * fleet.pool_nics_per_node.value
    return min(ports * port, fleet.pool_bytes_per_s)


def _stages(path: MovePath, pool_nic: str | None = None) -> tuple[StageSpec, ...]:
    return tuple(
        StageSpec(hop.kind, _link_ids(hop, pool_nic), hop.latency_s) for hop in path.stages
    )


def _link_ids(hop: Hop, pool_nic: str | None) -> tuple[str, ...]:
    """The hop's links, and the pool's ports where the hop is on the network."""
    ids = tuple(link.link_id for link in hop.links)
    return (*ids, pool_nic) if pool_nic is not None and hop.kind == "pull" else ids


def _links(*paths: MovePath) -> list[LinkSpec]:
    """Each link of the paths once; links that several instances of a node share are joint."""
    links: dict[str, LinkSpec] = {}
    for path in paths:
        for hop in path.stages:
            for link in hop.links:
                spec = LinkSpec(link.link_id, "instance", link.bytes_per_s, ceil(link.shared_by))
                links.setdefault(link.link_id, spec)
    return list(links.values())
