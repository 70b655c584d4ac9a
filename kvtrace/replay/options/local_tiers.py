"""Stores of the GPU nodes themselves: host DRAM that idles or is bought, and local SSDs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvtrace.cost.tco.need import Need
from kvtrace.cost.tier_paths import LOCAL_NVME, find_path
from kvtrace.errors import ModelError
from kvtrace.replay.options.ground import CannotRunError, Ground, is_given, node_share
from kvtrace.replay.options.parts import Parts, both_ways, links_of, stages_of
from kvtrace.replay.scenario import LinkSpec, TierSpec

LOCAL_FLASH: Final = "local_nvme"


def no_tier(ground: Ground) -> Parts:
    """HBM alone."""
    del ground
    return Parts()


def idle_dram(ground: Ground) -> Parts:
    """Host DRAM that is free for KV, private to each instance."""
    return _host_dram(ground, 0.0)


def bought_dram(ground: Ground) -> Parts:
    """As many bytes as the pool has, bought for the GPU nodes and added to their idle DRAM.

    No more than the nodes have room for.

    Raises:
        CannotRunError: they have none.
    """
    fleet = ground.fleet
    room = fleet.dram_room_bytes_per_instance.value
    if room <= 0:
        raise CannotRunError("the fleet file says that the GPU nodes have no room for more DRAM")
    return _host_dram(ground, min(room, fleet.pool_dram_bytes.value / fleet.instances))


def _host_dram(ground: Ground, bought_bytes: float) -> Parts:
    deployment, fleet = ground.deployment, ground.fleet
    read, write = both_ways(deployment, "dram_pcie")
    idle = fleet.dram_idle_bytes_per_instance.value
    tier = TierSpec(
        tier_id="host_dram",
        scope="instance",
        capacity_bytes=idle + bought_bytes,
        lookup_s=read.lookup_s,
        read=stages_of(read),
        write=stages_of(write),
    )
    need = Need(
        idle_dram_bytes=idle * fleet.instances,
        gpu_node_dram_bytes=bought_bytes * fleet.instances,
    )
    return Parts(tiers=(tier,), links=tuple(links_of(read, write)), need=need)


def local_nvme(ground: Ground) -> Parts:
    """SSDs of the GPU nodes below their idle DRAM, written through: what is computed goes to both.

    What the fleet file states as free is used; where nothing is, the drives that the hardware's
    host has room for are bought.

    Raises:
        CannotRunError: the nodes have no drives, or nobody published a figure of them.
    """
    deployment, fleet = ground.deployment, ground.fleet
    drive, drives = deployment.hardware.nvme, deployment.hardware.topology.nvme_per_node.value
    free = fleet.nvme_free_bytes_per_instance.value
    if not free and is_given(fleet.nvme_free_bytes_per_instance):
        raise CannotRunError("the fleet file says that no NVMe of the GPU nodes is free")
    if not free and (not drives or drive.capacity_bytes is None):
        raise CannotRunError("no SSD of the GPU nodes is known: state `[nvme]` in a hardware file")
    try:
        read = find_path(deployment, LOCAL_NVME)
        write = find_path(deployment, LOCAL_NVME, direction="write")
    except ModelError as error:
        raise CannotRunError(error.message) from error
    above = idle_dram(ground)
    written = f"{drive.tier}_write"
    into_drive = replace(write, stages=write.stages[-1:])
    links = [link for link in links_of(read) if link.link_id == drive.tier]
    onto = [link for link in links_of(into_drive) if link.link_id == drive.tier]
    per_drive = 0.0 if drive.capacity_bytes is None else drive.capacity_bytes.value
    size = free or drives * per_drive * node_share(deployment)
    (down,) = stages_of(into_drive)
    tier = TierSpec(
        tier_id=LOCAL_FLASH,
        scope="instance",
        capacity_bytes=size,
        lookup_s=read.lookup_s,
        read=stages_of(read),
        write=(
            replace(down, link_ids=tuple(written if i == drive.tier else i for i in down.link_ids)),
        ),
    )
    renamed = [
        LinkSpec(written, one.scope, one.bytes_per_s, one.instances_per_link) for one in onto
    ]
    return Parts(
        tiers=(*above.tiers, tier),
        links=(*above.links, *links, *renamed),
        need=replace(
            above.need,
            gpu_node_ssd_bytes=0.0 if free else size * fleet.instances,
            worn_ssd_bytes=free * fleet.instances,
        ),
    )
