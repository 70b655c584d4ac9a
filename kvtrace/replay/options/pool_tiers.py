"""Pools by where they live: what all instances share, over one wire.

Every place serves at a rate of its own, which joins the node's ports on the way; the blocks of a
request lie spread over all that serves, so that one load may use every port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Final

from kvtrace.cost.storage import StorageTier
from kvtrace.cost.tco.need import Need, pool_of_fleet
from kvtrace.cost.tco.rent import shapes, usable_bytes
from kvtrace.cost.tier_paths import STORES
from kvtrace.replay.options.ground import (
    BITS_PER_BYTE,
    CannotRunError,
    Ground,
    line_bits_per_s,
    network_bytes_per_s,
)
from kvtrace.replay.options.option import Place, Wire
from kvtrace.replay.options.parts import Parts, both_ways, links_of, on_stated_network, stages_of
from kvtrace.replay.scenario import LinkSpec, StageSpec, TierSpec

PoolBuilder = Callable[[Ground, Wire], Parts]
PATHS: Final[Mapping[Wire, str]] = {
    "tcp": "pool_tcp",
    "rdma_bounce": "pool_rdma_bounce",
    "rdma_direct": "pool_rdma_direct",
}
_NICS: Final[Mapping[Wire, str]] = {
    "tcp": "nic_tcp",
    "rdma_bounce": "nic_rdma",
    "rdma_direct": "nic_rdma",
}
POOL_FLASH: Final = "pool_ssd"
"""Tier of drives within pool nodes, which are written from the DRAM above them."""
_FLASH, _FLASH_WRITE = "pool_nvme", "pool_nvme_write"


def dram_nodes(ground: Ground, wire: Wire) -> Parts:
    """DRAM of nodes of their own; it keeps one copy of what ranks replicate."""
    fleet = ground.fleet
    ports = _pool_ports(ground, wire)
    size = fleet.pool_dram_bytes.value
    return _pool(ground, wire, size, (ports,), need=pool_of_fleet(fleet))


def peer_dram(ground: Ground, wire: Wire) -> Parts:
    """The idle DRAM of all GPU nodes as one store, served over their own ports.

    Assumes: no part of a request's blocks lies on its own node, so that every byte crosses a port.
    """
    fleet, hardware = ground.fleet, ground.deployment.hardware
    network = network_bytes_per_s(ground, is_tcp=wire == "tcp")
    rate = fleet.gpu_nodes * min(network, hardware.dram_read_bytes_per_s.value)
    size = fleet.dram_idle_bytes_per_instance.value * fleet.instances
    need = Need(idle_dram_bytes=size, is_operated=True)
    return _pool(ground, wire, size, (LinkSpec("peer_ports", "shared", rate),), need=need)


def dram_ssd_nodes(ground: Ground, wire: Wire) -> Parts:
    """DRAM of pool nodes with drives below it, written through: what is computed goes to both.

    A read from flash crosses the drives and the nodes' ports; a write goes on inside its node, once
    it is in DRAM.

    Raises:
        CannotRunError: nobody published a figure of the drives.
    """
    deployment, fleet = ground.deployment, ground.fleet
    hardware = deployment.hardware
    drive = hardware.tier(hardware.pool_nvme_tier)
    if drive.write_bytes_per_s is None:
        raise CannotRunError(f"nobody published how fast {drive.title} takes writes")
    drives = hardware.pool_nvme_per_node.value * fleet.pool_nodes.value
    above = dram_nodes(ground, wire)
    (dram,) = above.tiers
    read = deployment.path(PATHS[wire])
    first_s = drive.first_byte_s.value
    ports = _pool_ports(ground, wire).link_id
    size = drives * _capacity(drive)
    flash = TierSpec(
        tier_id=POOL_FLASH,
        scope="shared",
        capacity_bytes=size,
        lookup_s=0.0,
        read=stages_of(read, (ports, _FLASH), first_byte_s=first_s),
        write=(StageSpec("pull", (_FLASH_WRITE,), first_s),),
        stored_bytes_per_token=dram.stored_bytes_per_token,
    )
    links = (
        LinkSpec(_FLASH, "shared", drives * drive.read_bytes_per_s.value),
        LinkSpec(_FLASH_WRITE, "shared", drives * drive.write_bytes_per_s.value),
    )
    return Parts(
        tiers=(dram, flash),
        links=(*above.links, *links),
        need=replace(above.need, pool_ssd_bytes=size * fleet.with_spare_nodes),
    )


def file_system(ground: Ground, wire: Wire) -> Parts:
    """A parallel file system or appliance of the bytes of an SSD pool and the rate of pool nodes.

    Each client node reads at most at the rate that was measured of one; writes are a share of that.
    """
    deployment, fleet = ground.deployment, ground.fleet
    hardware = deployment.hardware
    store, drive = hardware.tier(STORES["file_system"]), hardware.tier(hardware.pool_nvme_tier)
    share = hardware.file_system_write_share.value
    served = fleet.pool_bytes_per_s
    size = hardware.pool_nvme_per_node.value * fleet.pool_nodes.value * _capacity(drive)
    client = store.read_bytes_per_s.value * max(1.0, deployment.kv_ranks / hardware.gpus_per_node)
    sharers = ceil(max(1.0, hardware.gpus_per_node / deployment.kv_ranks))
    far = (
        LinkSpec("fs_client", "instance", client, sharers),
        LinkSpec("file_system", "shared", served),
    )
    onto = (
        LinkSpec("fs_client_write", "instance", client * share, sharers),
        LinkSpec("file_system_write", "shared", served * share),
    )
    need = Need(appliance_bytes=size, appliance_bytes_per_s=served, is_operated=True)
    return _pool(
        ground, wire, size, far, need=need, onto=onto, first_byte_s=store.first_byte_s.value
    )


def managed_cache(ground: Ground, wire: Wire) -> Parts:
    """A cloud's managed cache of the bytes of the pool's DRAM, by whole nodes.

    Raises:
        CannotRunError: over RDMA, which no such service offers.
    """
    if wire != "tcp":
        raise CannotRunError("managed cloud caches are reached over TCP alone")
    fleet = ground.fleet
    node = ground.deployment.hardware.tier("managed_cache_node")
    prices = fleet.prices
    shape, usable = prices["managed_cache_node_gib"], prices["managed_cache_share"]
    nodes = shapes(fleet.pool_dram_bytes.value, shape, usable)
    size = nodes * usable_bytes(shape, usable)
    far = (LinkSpec("cache_nodes", "shared", nodes * node.read_bytes_per_s.value),)
    need = Need(managed_cache_bytes=size)
    return _pool(ground, wire, size, far, need=need, first_byte_s=node.first_byte_s.value)


PLACES: Final[Mapping[Place, PoolBuilder]] = {
    "dram_nodes": dram_nodes,
    "peer_dram": peer_dram,
    "dram_ssd_nodes": dram_ssd_nodes,
    "file_system": file_system,
    "managed_cache": managed_cache,
}


def _pool(
    ground: Ground,
    wire: Wire,
    size_bytes: float,
    far: tuple[LinkSpec, ...],
    *,
    need: Need,
    onto: tuple[LinkSpec, ...] | None = None,
    first_byte_s: float = 0.0,
) -> Parts:
    """One shared tier behind the node's ports and the links at the far end.

    `far`: links of reads, `onto`: those of writes; null: the same ones.
    """
    deployment = ground.deployment
    read, write = both_ways(deployment, PATHS[wire])
    back = far if onto is None else onto
    tier = TierSpec(
        tier_id="pool",
        scope="shared",
        capacity_bytes=size_bytes,
        lookup_s=read.lookup_s,
        read=stages_of(read, [link.link_id for link in far], first_byte_s=first_byte_s),
        write=stages_of(write, [link.link_id for link in back], first_byte_s=first_byte_s),
        stored_bytes_per_token=deployment.kv_bytes_per_token_unreplicated,
    )
    links = (
        *on_stated_network(links_of(read, write), ground),
        *far,
        *(() if onto is None else onto),
    )
    return Parts(tiers=(tier,), links=links, need=need)


def _pool_ports(ground: Ground, wire: Wire) -> LinkSpec:
    """What all pool nodes together serve over this wire.

    Formula: RDMA: nodes · min(ports · port rate, DRAM rate). TCP: the port rate is the one that a
    GPU node's TCP port reaches, but never more than over RDMA.
    """
    fleet, hardware = ground.fleet, ground.deployment.hardware
    nic = _NICS[wire]
    rate = fleet.pool_bytes_per_s
    if wire == "tcp":
        port = hardware.tcp.port.bytes_per_s(hardware.chunk_bytes.value)
        rate = min(fleet.pool_nodes.value * fleet.pool_nics_per_node.value * port, rate)
    return LinkSpec(f"pool_{nic}", "shared", rate)


def with_ports(need: Need, stated: Ground, wire: Wire, bits_per_s: float | None) -> Need:
    """The need of a pool with its ports: `bits_per_s` of their line rate, null as stated.

    GPU nodes get as many new ones as they have where theirs are slower, and where the fleet file
    says that the network is not built.
    """
    network = stated.fleet.network
    own = network.storage_ports if wire == "tcp" else network.compute_ports
    is_faster = bits_per_s is not None and bits_per_s > line_bits_per_s(stated)
    is_bought = is_faster or not network.is_built.value
    return replace(
        need,
        port_bytes_per_s=None if bits_per_s is None else bits_per_s / BITS_PER_BYTE,
        gpu_node_ports=own.value * stated.fleet.gpu_nodes if is_bought else 0.0,
    )


def _capacity(tier: StorageTier) -> float:
    if tier.capacity_bytes is None:
        raise CannotRunError(f"the capacity of {tier.title} is not known")
    return tier.capacity_bytes.value
