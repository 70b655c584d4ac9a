"""Paths from the stores below host memory: local drives, flash of a pool, file systems, objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.names import build_index, find_name
from kvtrace.cost.storage import StorageTier
from kvtrace.cost.transfer import PATH_IDS, PATH_TITLES, Hop, HopLink, MovePath, PathId
from kvtrace.units import parse_rate

_RATE: Final = re.compile(r"(?:([1-9][0-9]{0,2})x)?([0-9][0-9.,_]*\s*[kKMGT]i?[bB]\S*)")
LOCAL_NVME: Final = "local_nvme"
POOL_SSD: Final = "pool_ssd"
STORES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "file_system": "parallel_fs_storage_scale_1_client_node_4xh100",
        "object_store": "object_store_coreweave_aios_per_8_gpu_node",
    }
)
"""The measured store that a plain word stands for; any other is named by itself."""
LEDGER_PATHS: Final[tuple[str, ...]] = (*PATH_IDS, LOCAL_NVME, POOL_SSD, *STORES)
"""What a ledger compares unless told."""


def find_path(deployment: Deployment, name: str) -> MovePath:
    """The path of a name: one of `LEDGER_PATHS`, a store of the hardware, or a bare rate.

    A rate such as `20GB/s` is one link without fixed seconds, `4x20GB/s` four side by side.

    Raises:
        UsageError: unknown, with close names; or a rate without a clear unit.
    """
    rate = _RATE.fullmatch(name.strip())
    if rate is not None:
        links = int(rate.group(1) or 1)
        return _bare(name.strip(), max(links, 1) * parse_rate(rate.group(2)))
    stores = [tier.tier for tier in deployment.hardware.tiers]
    found = find_name(
        name,
        build_index((known, ()) for known in (*LEDGER_PATHS, *stores)),
        what="path",
        code="KVT-C053",
        hint=f"use one of {', '.join(LEDGER_PATHS)}; a store that `kvtrace hardware` lists; or a "
        "rate such as `20GB/s` or `4x20GB/s`",
    )
    if found in PATH_IDS:
        return deployment.path(found)
    if found == LOCAL_NVME:
        return _local_nvme(deployment)
    if found == POOL_SSD:
        return _pool_ssd(deployment)
    return _store(deployment, found, deployment.hardware.tier(STORES.get(found, found)))


def path_title(deployment: Deployment, path_id: str) -> str:
    """What a path is, in words."""
    hardware = deployment.hardware
    if _RATE.fullmatch(path_id):
        return "a rate as given, without fixed seconds"
    for known in PATH_IDS:
        if known == path_id:
            return PATH_TITLES[known]
    if path_id == LOCAL_NVME:
        drives = hardware.topology.nvme_per_node.value
        return f"{drives:g} x {hardware.nvme.title} of the node, through host DRAM"
    if path_id == POOL_SSD:
        drives, title = hardware.pool_nvme_per_node.value, hardware.tier(hardware.pool_nvme_tier)
        return f"{drives:g} x {title.title} of a pool node over RDMA, through host DRAM"
    return f"{hardware.tier(STORES.get(path_id, path_id)).title}, through host DRAM"


def _bare(path_id: str, bytes_per_s: float) -> MovePath:
    stage = Hop("pull", (HopLink(path_id, bytes_per_s, 1.0),), 0.0)
    return MovePath(cast("PathId", path_id), "read", 0.0, (stage,), ())


def _local_nvme(deployment: Deployment) -> MovePath:
    hardware = deployment.hardware
    drives = hardware.topology.nvme_per_node
    link = _link(deployment, hardware.nvme, drives.value)
    return _through_host(
        deployment,
        LOCAL_NVME,
        (link,),
        hardware.nvme.first_byte_s.value,
        hardware.dram_lookup_s,
        (*hardware.nvme.constants(), drives),
    )


def _pool_ssd(deployment: Deployment) -> MovePath:
    """One pool node reads its drives and serves them at once; its bytes cross this node's NICs."""
    hardware = deployment.hardware
    bounce = deployment.path("pool_rdma_bounce")
    pull = next(hop for hop in bounce.stages if hop.kind == "pull")
    tier, drives = hardware.tier(hardware.pool_nvme_tier), hardware.pool_nvme_per_node
    rate = tier.read_bytes_per_s.value * drives.value
    links = (HopLink("pool_nvme", rate, 1.0), *_without_dram(pull))
    evidence = (*bounce.evidence, *tier.constants(), drives)
    latency = pull.latency_s + tier.first_byte_s.value
    return _through_host(deployment, POOL_SSD, links, latency, hardware.pool_lookup_s, evidence)


def _store(deployment: Deployment, path_id: str, tier: StorageTier) -> MovePath:
    """A store at its own rate: a client's rate holds its network already."""
    hardware = deployment.hardware
    units = hardware.topology.nvme_per_node.value if tier.rate_per == "drive" else 1.0
    if tier.rate_per == "socket":
        units = float(hardware.topology.numa_nodes)
    lookup = hardware.pool_lookup_s if tier.is_shared else hardware.dram_lookup_s
    link = _link(deployment, tier, units)
    first_s = tier.first_byte_s.value
    return _through_host(deployment, path_id, (link,), first_s, lookup, tier.constants())


def _link(deployment: Deployment, tier: StorageTier, units: float) -> HopLink:
    """The store as one instance sees it: that of each node that it spans, shared in a node."""
    per_node = deployment.hardware.gpus_per_node
    nodes = -(-deployment.tp // per_node)
    rate = tier.read_bytes_per_s.value * units * nodes
    return HopLink(tier.tier, rate, max(1.0, per_node / deployment.tp))


def _through_host(
    deployment: Deployment,
    path_id: str,
    links: tuple[HopLink, ...],
    latency_s: float,
    lookup: Constant,
    evidence: tuple[Constant, ...],
) -> MovePath:
    """Into host DRAM, then over the host link into HBM."""
    load = deployment.path("dram_pcie")
    bounce = deployment.path("pool_rdma_bounce").stages[0]
    landing = next(link for link in bounce.links if link.link_id.startswith("host_dram"))
    pull = Hop("pull", (*links, landing), latency_s)
    return MovePath(
        path_id=cast("PathId", path_id),
        direction="read",
        lookup_s=lookup.value,
        stages=(pull, *load.stages),
        evidence=(lookup, *evidence, *load.evidence),
    )


def _without_dram(pull: Hop) -> tuple[HopLink, ...]:
    return tuple(link for link in pull.links if not link.link_id.startswith("host_dram"))
