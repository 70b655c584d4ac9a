"""The GPUs that are known by name, each in its usual host."""

from __future__ import annotations

from functools import cache

from kvtrace.cost.evidence import (
    Constant,
    EvidenceKind,
    moves_constant,
    number,
    read_constant,
    read_table,
    read_toml,
)
from kvtrace.cost.hardware import Gpu, HardwareProfile, Network
from kvtrace.cost.links import load_link
from kvtrace.cost.names import build_index, find_name
from kvtrace.cost.storage import list_tiers, load_tier
from kvtrace.cost.topology import read_topology


def list_gpus() -> tuple[str, ...]:
    """Names of the built-in GPUs."""
    return tuple(row["gpu"] for row in read_table("gpus.csv"))


def built_in_hardware(name: str) -> HardwareProfile:
    """The profile of a built-in GPU in its usual host.

    Raises:
        UsageError: unknown, with close names.
    """
    found = find_name(
        name,
        _index(),
        what="GPU",
        code="KVT-C041",
        hint='name a built-in GPU or pass a TOML file: `gpu = "H100-SXM5"` and what differs',
    )
    return _built_in(found)


def gpu_names() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The built-in GPUs, each with its other names."""
    rows = read_table("gpus.csv")
    return tuple((row["gpu"], tuple(filter(None, row["aliases"].split(";")))) for row in rows)


@cache
def _index() -> dict[str, str]:
    return build_index(gpu_names())


@cache
def _built_in(name: str) -> HardwareProfile:
    row = next(row for row in read_table("gpus.csv") if row["gpu"] == name)
    host = read_toml("hosts.toml")["hosts"][row["host"]]

    def read(key: str, unit: str, title: str) -> Constant:
        entry = host[key]
        if not isinstance(entry, dict):
            raise ValueError(f"hosts.{row['host']}.{key} is not a table")
        return read_constant(
            entry,
            id=f"hosts.{row['host']}.{key}",
            unit=unit,
            title=title,
            source=str(host["source"]),
            as_of=str(host["as_of"]),
        )

    return HardwareProfile(
        name=name,
        gpu=_gpu(row),
        gpus_per_node=int(number(host["gpus_per_node"])),
        host_link=load_link(row["host_link"]),
        tcp=_network(host, row["host"], "tcp"),
        rdma=_network(host, row["host"], "rdma"),
        dram_bytes_per_node=read("dram_bytes", "B", "host DRAM of a node"),
        dram_idle_share=moves_constant("dram_idle_share"),
        dram_read_bytes_per_s=read("dram_read_bytes_per_s", "B/s", "reads of a node's DRAM"),
        dram_write_bytes_per_s=read("dram_write_bytes_per_s", "B/s", "writes to a node's DRAM"),
        chunk_bytes=moves_constant("chunk_bytes"),
        load_efficiency=moves_constant("load_efficiency"),
        load_contention=moves_constant("load_contention"),
        handover_s=moves_constant("handover_s"),
        dram_lookup_s=moves_constant("dram_lookup_s"),
        pool_lookup_s=moves_constant("pool_lookup_s"),
        gpu_memory_utilisation=moves_constant("gpu_memory_utilisation"),
        activation_reserve_bytes=moves_constant("activation_reserve_bytes"),
        host=row["host"],
        topology=read_topology(host, row["host"]),
        tiers=tuple(load_tier(tier) for tier in list_tiers()),
        pool_nvme_tier=str(_pool_node()["nvme_tier"]),
        pool_nvme_per_node=_stored(
            "pool_nodes", "ssd", "nvme_per_node", unit="drives", title="NVMe drives of a pool node"
        ),
        file_system_write_share=_stored(
            "file_systems",
            "shares",
            "write_over_read",
            unit="ratio",
            title="writes of a parallel file system over its reads",
        ),
        gpu_usd_per_hour=_gpu_price(name),
    )


def _pool_node() -> dict[str, object]:
    return read_toml("storage.toml")["pool_nodes"]["ssd"]


def _stored(section: str, entry: str, name: str, *, unit: str, title: str) -> Constant:
    """A constant of data/storage.toml that belongs to no single store."""
    table = read_toml("storage.toml")[section][entry]
    raw = table[name]
    if not isinstance(raw, dict):
        raise ValueError(f"storage.toml: {section}.{entry}.{name} is not a table")
    return read_constant(
        raw,
        id=f"{section}.{entry}.{name}",
        unit=unit,
        title=title,
        source=str(table["source"]),
        as_of=str(table["as_of"]),
    )


def _gpu_price(gpu: str) -> Constant:
    """USD per GPU-hour of a built-in GPU, on demand."""
    return read_constant(
        read_toml("prices.toml")["gpu_usd_per_hour"][gpu], id="prices.gpu_usd_per_hour"
    )


def _network(host: dict[str, object], host_name: str, kind: str) -> Network:
    entry = host[kind]
    if not isinstance(entry, dict):
        raise ValueError(f"hosts.{host_name}.{kind} is not a table")
    ports = Constant(
        id=f"hosts.{host_name}.{kind}.ports_per_node",
        title=f"{kind} ports of a node",
        value=number(entry["ports_per_node"]),
        unit="ports",
        low=1.0,
        high=None,
        kind="assumed",
        source=str(host["source"]),
        as_of=str(host["as_of"]),
    )
    return Network(load_link(str(entry["link"])), ports, moves_constant(f"{kind}_setup_s"))


def _gpu(row: dict[str, str]) -> Gpu:
    kind: EvidenceKind = "spec" if row["kind"] == "spec" else "assumed"

    def read(key: str, unit: str, title: str) -> Constant | None:
        if not row[key]:
            return None
        value = float(row[key])
        spread = 0.0 if kind == "spec" else 0.15
        return Constant(
            id=f"gpus.{row['gpu']}.{key}",
            title=f"{row['gpu']}: {title}",
            value=value,
            unit=unit,
            low=None if kind == "spec" else value * (1 - spread),
            high=None if kind == "spec" else value * (1 + spread),
            kind=kind,
            source=row["source"],
            as_of=row["as_of"],
        )

    def require(key: str, unit: str, title: str) -> Constant:
        constant = read(key, unit, title)
        if constant is None:
            raise ValueError(f"gpus.csv: {row['gpu']} has no {key}")
        return constant

    return Gpu(
        name=row["gpu"],
        vendor=row["vendor"],
        family=row["family"],
        bf16_flops=require("bf16_flops", "FLOP/s", "dense bf16 peak"),
        fp8_flops=read("fp8_flops", "FLOP/s", "dense fp8 peak"),
        fp4_flops=read("fp4_flops", "FLOP/s", "dense fp4 peak"),
        hbm_bytes=require("hbm_bytes", "B", "memory; the vendor's GB taken as 2^30, as drivers do"),
        hbm_bytes_per_s=require("hbm_bytes_per_s", "B/s", "memory bandwidth"),
        scaleup_bytes_per_s=read("scaleup_bytes_per_s", "B/s", "scale-up link, a direction"),
        tdp_watts=float(row["tdp_w"]),
    )
