"""Paths from the stores below host memory: local drives, flash of a pool, file systems, objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.names import build_index, find_name
from kvtrace.cost.storage import StorageTier
from kvtrace.cost.transfer import (
    PATH_IDS,
    PATH_TITLES,
    Direction,
    Hop,
    HopLink,
    MovePath,
    PathId,
)
from kvtrace.errors import ModelError, UsageError
from kvtrace.units import parse_rate

_RATE: Final = re.compile(r"(?:([1-9][0-9]{0,2})x)?([0-9][0-9.,_]*\s*[kKMGT]i?(?:[bB]\S*)?)")
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


def find_path(deployment: Deployment, name: str, *, direction: Direction = "read") -> MovePath:
    """The path of a name: one of `LEDGER_PATHS`, a store of the hardware, or a bare rate.

    A rate such as `20GB/s` is one link without fixed seconds, `4x20GB/s` four side by side; it
    is the same both ways.

    Raises:
        UsageError: unknown, with close names; or a rate without a clear unit.
        ModelError: nobody published how fast the store takes writes.
    """
    rate = _RATE.fullmatch(name.strip())
    if rate is not None:
        bytes_per_s = int(rate.group(1) or 1) * parse_rate(rate.group(2))
        if bytes_per_s <= 0:
            raise UsageError(
                "KVT-C055", f"nothing moves at `{name.strip()}`", hint="`--path 20GB/s`"
            )
        return _bare(name.strip(), bytes_per_s, direction)
    found = name if name in LEDGER_PATHS else _named(deployment, name)
    if found in PATH_IDS:
        return deployment.path(found, direction=direction)
    if found == LOCAL_NVME:
        return _local_nvme(deployment, direction)
    if found == POOL_SSD:
        return _pool_ssd(deployment, direction)
    store = deployment.hardware.tier(STORES.get(found, found))
    return _store(deployment, found, store, direction)


def _named(deployment: Deployment, name: str) -> str:
    stores = [tier.tier for tier in deployment.hardware.tiers]
    return find_name(
        name,
        build_index((known, ()) for known in (*LEDGER_PATHS, *stores)),
        what="path",
        code="KVT-C053",
        hint=f"use one of {', '.join(LEDGER_PATHS)}; a store that `kvtrace hardware` lists; or a "
        "rate such as `20GB/s` or `4x20GB/s`",
    )


def write_path(deployment: Deployment, name: str) -> MovePath | None:
    """The way of KV into the store of a path; null where nobody published its write rate."""
    try:
        return find_path(deployment, name, direction="write")
    except ModelError:
        return None


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


def _bare(path_id: str, bytes_per_s: float, direction: Direction) -> MovePath:
    stage = Hop("pull", (HopLink(path_id, bytes_per_s, 1.0),), 0.0)
    return MovePath(cast("PathId", path_id), direction, 0.0, (stage,), ())


def _local_nvme(deployment: Deployment, direction: Direction) -> MovePath:
    hardware = deployment.hardware
    drives = hardware.topology.nvme_per_node
    store = _Store(
        links=(_link(deployment, hardware.nvme, drives.value, direction),),
        latency_s=hardware.nvme.first_byte_s.value,
        lookup=hardware.dram_lookup_s,
        evidence=(*hardware.nvme.constants(), drives),
    )
    return _through_host(deployment, LOCAL_NVME, store, direction)


def _pool_ssd(deployment: Deployment, direction: Direction) -> MovePath:
    """One pool node reads its drives and serves them at once; its bytes cross this node's NICs."""
    hardware = deployment.hardware
    bounce = deployment.path("pool_rdma_bounce", direction=direction)
    pull = next(hop for hop in bounce.stages if hop.kind == "pull")
    tier, drives = hardware.tier(hardware.pool_nvme_tier), hardware.pool_nvme_per_node
    flash = HopLink("pool_nvme", _rate(tier, drives.value, direction), 1.0)
    store = _Store(
        links=(flash, *_without_dram(pull)),
        latency_s=pull.latency_s + tier.first_byte_s.value,
        lookup=hardware.pool_lookup_s,
        evidence=(*bounce.evidence, *tier.constants(), drives),
    )
    return _through_host(deployment, POOL_SSD, store, direction)


def _store(
    deployment: Deployment, path_id: str, tier: StorageTier, direction: Direction
) -> MovePath:
    """A store at its own rate: a client's rate holds its network already."""
    hardware = deployment.hardware
    units = hardware.topology.nvme_per_node.value if tier.rate_per == "drive" else 1.0
    if tier.rate_per == "socket":
        units = float(hardware.topology.numa_nodes)
    store = _Store(
        links=(_link(deployment, tier, units, direction),),
        latency_s=tier.first_byte_s.value,
        lookup=hardware.pool_lookup_s if tier.is_shared else hardware.dram_lookup_s,
        evidence=tier.constants(),
    )
    return _through_host(deployment, path_id, store, direction)


def _link(deployment: Deployment, tier: StorageTier, units: float, direction: Direction) -> HopLink:
    """The store as one instance sees it: that of each node that it spans, shared in a node."""
    per_node = deployment.hardware.gpus_per_node
    nodes = -(-deployment.kv_ranks // per_node)
    shared_by = max(1.0, per_node / deployment.kv_ranks)
    return HopLink(tier.tier, _rate(tier, units * nodes, direction), shared_by)


def _rate(tier: StorageTier, units: float, direction: Direction) -> float:
    """Bytes/s of `units` of a store side by side.

    Raises:
        ModelError: nobody published the rate of writes.
    """
    return tier.link(is_reading=direction == "read", units=units).max_bytes_per_s.value


@dataclass(frozen=True, slots=True)
class _Store:
    """Where bytes come from or go to, on the far side of host DRAM."""

    links: tuple[HopLink, ...]
    latency_s: float
    lookup: Constant
    evidence: tuple[Constant, ...]


def _through_host(
    deployment: Deployment, path_id: str, store: _Store, direction: Direction
) -> MovePath:
    """Into host DRAM, then over the host link into HBM; a write the other way round."""
    load = deployment.path("dram_pcie", direction=direction)
    bounce = deployment.path("pool_rdma_bounce", direction=direction)
    crossing = next(hop for hop in bounce.stages if hop.kind == "pull").links
    dram = next(link for link in crossing if link.link_id.startswith("host_dram"))
    pull = Hop("pull", (*store.links, dram), store.latency_s)
    is_read = direction == "read"
    return MovePath(
        path_id=cast("PathId", path_id),
        direction=direction,
        lookup_s=store.lookup.value if is_read else 0.0,
        stages=(pull, *load.stages) if is_read else (*load.stages, pull),
        evidence=(store.lookup, *store.evidence, *load.evidence),
    )


def _without_dram(pull: Hop) -> tuple[HopLink, ...]:
    return tuple(link for link in pull.links if not link.link_id.startswith("host_dram"))
