"""Where KV can lie: what each tier gives, and how long contexts take, beside recomputing them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from kvtrace.audit.bounds import knows_flops
from kvtrace.audit.record import Cell, Table
from kvtrace.audit.tables.room import hbm_bytes_per_s, room_tables
from kvtrace.audit.tables.shape import TableShape
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.efficiency import efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.links import Link, list_links, load_link
from kvtrace.cost.tier_paths import STORES, find_path, path_title
from kvtrace.cost.transfer import HopLink, MovePath
from kvtrace.errors import ModelError
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import RequestTrace

TIERS_TABLE: Final = "kv/tiers"
LENGTHS: Final = (2_000, 8_000, 32_000)
MANAGED: Final = "managed_cache_node"
PATHS: Final = (
    "dram_pcie",
    "pool_rdma_direct",
    "pool_rdma_bounce",
    "pool_tcp",
    "local_nvme",
    "pool_ssd",
    "file_system",
    "object_store",
    MANAGED,
)
"""Below the GPUs, by kind."""
_SHAPE: Final = TableShape(
    TIERS_TABLE,
    "Tiers of KV: rates, and times of contexts (modelled)",
    (
        ("tier", "name", "where the KV lies, and its path; last: computed anew"),
        ("bytes_per_s", "bytes/s", "usable, into HBM, all ranks of a sequence together, alone"),
        ("ratio_hbm", "times", "of what reads of KV reach of the HBM"),
        ("tokens_2k_s", "s", "for the KV of 2 000 tokens, lookup and latencies included"),
        ("tokens_8k_s", "s", "for 8 000 tokens"),
        ("tokens_32k_s", "s", "for 32 000 tokens"),
        ("over_recompute_8k", "times", "of their prefill; above 1 computing is faster"),
        ("slowest", "name", "the slowest link on the way"),
        ("kind", "name", "spec | measured | fitted | assumed: what its rate rests on"),
        ("title", "text", "what the tier is"),
        ("source", "text", "of the rate of the slowest link"),
    ),
)  # fmt: skip


def kv_tables(
    deployment: Deployment, trace: RequestTrace | None, today: ReplayResult | None
) -> dict[str, Table]:
    """Room for KV and the tiers below it; no room where the weights do not fit."""
    try:
        tables = [*room_tables(deployment, trace, today), tier_rates(deployment)]
    except ModelError:
        tables = [tier_rates(deployment)]
    return {table.id: table for table in tables}


def tier_rates(deployment: Deployment) -> Table:
    """HBM first, recomputing last; its times are null where FLOPs are not known."""
    again = _recompute_s(deployment)
    rows = [_hbm_row(deployment, again)]
    peers = _peer_row(deployment, again)
    if peers is not None:
        rows.append(peers)
    rows += [_path_row(deployment, name, again) for name in PATHS]
    rows.append(
        ["recompute", None, None, *again, None if again[1] is None else 1.0, None, "fitted",
         f"prefill on {deployment.busy_gpus} x {deployment.hardware.gpu.name}", "cost model"]
    )  # fmt: skip
    return _SHAPE.table(rows)


def _recompute_s(deployment: Deployment) -> list[float | None]:
    if not knows_flops(deployment):
        return [None for _ in LENGTHS]
    return [deployment.prefill.prefill_s(float(tokens), 0.0) for tokens in LENGTHS]


def _times(deployment: Deployment, rate: float, fixed_s: float) -> list[float]:
    return [fixed_s + deployment.kv_bytes(tokens) / rate for tokens in LENGTHS]


def _row(
    deployment: Deployment,
    tier: str,
    rate: float,
    times: list[float],
    again: list[float | None],
    *,
    slowest: str,
    evidence: Constant,
    title: str,
) -> list[Cell]:
    over = None if not again[1] else times[1] / again[1]
    return [
        tier,
        rate,
        rate / hbm_bytes_per_s(deployment),
        *times,
        over,
        slowest,
        evidence.kind,
        title,
        f"{evidence.source} ({evidence.as_of})" if evidence.as_of else evidence.source,
    ]


def _hbm_row(deployment: Deployment, again: list[float | None]) -> list[Cell]:
    gpu, rate = deployment.hardware.gpu, hbm_bytes_per_s(deployment)
    table = deployment.efficiencies or efficiency_table()
    return _row(
        deployment,
        "hbm",
        rate,
        _times(deployment, rate, 0.0),
        again,
        slowest="hbm",
        evidence=table.kv_read(gpu.family),
        title=f"HBM of {deployment.kv_ranks} x {gpu.name}, read once; nothing moves",
    )


def _peer_row(deployment: Deployment, again: list[float | None]) -> list[Cell] | None:
    """HBM of GPUs beside, each rank from one; null without a scale-up link.

    The rate that long chunks reach where the link is known by its line rate, else the line rate.
    """
    gpu = deployment.hardware.gpu
    line = gpu.scaleup_bytes_per_s
    if line is None:
        return None
    link = _scaleup_link(line.value)
    one = line if link is None else link.max_bytes_per_s
    fixed = 0.0 if link is None else link.latency_s.value
    rate = deployment.kv_ranks * one.value
    return _row(
        deployment,
        "peer_hbm",
        rate,
        _times(deployment, rate, fixed),
        again,
        slowest="scale-up" if link is None else link.link,
        evidence=one,
        title="HBM of as many other GPUs of the node, over the scale-up link",
    )


def _scaleup_link(line_bytes_per_s: float) -> Link | None:
    links = (load_link(name) for name in list_links() if name.startswith("nvlink"))
    return next(
        (one for one in links if math.isclose(one.peak_bytes_per_s.value, line_bytes_per_s)), None
    )


def _path(deployment: Deployment, name: str) -> MovePath:
    """The path of a tier; a managed cache is reached over the TCP ports of the node."""
    if name != MANAGED:
        return find_path(deployment, name)
    store, path = deployment.hardware.tier(MANAGED), deployment.path("pool_tcp")
    pull, *rest = path.stages
    far = HopLink(MANAGED, store.read_bytes_per_s.value, 1.0)
    pull = replace(
        pull,
        links=(*pull.links, far),
        latency_s=pull.latency_s + store.first_byte_s.value,
    )
    return replace(path, stages=(pull, *rest))


def _path_row(deployment: Deployment, name: str, again: list[float | None]) -> list[Cell]:
    path = _path(deployment, name)
    slowest = min((link for hop in path.stages for link in hop.links), key=_rate)
    return _row(
        deployment,
        name,
        path.bytes_per_s,
        [path.move_s(deployment.kv_bytes(tokens)) for tokens in LENGTHS],
        again,
        slowest=slowest.link_id,
        evidence=_evidence(deployment, path, slowest.link_id, name),
        title=path_title(deployment, name),
    )


def _rate(link: HopLink) -> float:
    return link.bytes_per_s


def _evidence(deployment: Deployment, path: MovePath, link_id: str, name: str) -> Constant:
    """The constant that a link's rate rests on."""
    hardware = deployment.hardware
    fixed = {
        "pcie": hardware.host_link.max_bytes_per_s,
        "nic_tcp": hardware.tcp.port.max_bytes_per_s,
        "nic_rdma": hardware.rdma.port.max_bytes_per_s,
        "host_dram_read": hardware.dram_read_bytes_per_s,
        "host_dram_write": hardware.dram_write_bytes_per_s,
        "pool_nvme": hardware.tier(hardware.pool_nvme_tier).read_bytes_per_s,
    }
    if link_id in fixed:
        return fixed[link_id]
    return hardware.tier(STORES.get(name, link_id)).read_bytes_per_s
