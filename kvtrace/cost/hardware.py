"""GPUs, links and hosts: what they can do, and how much of it an engine reaches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvtrace.cost.dtypes import compute_dtype
from kvtrace.cost.evidence import (
    Constant,
    EvidenceKind,
    moves_constant,
    number,
    read_constant,
    read_table,
    read_toml,
)
from kvtrace.cost.links import Link as Link
from kvtrace.cost.links import list_links as list_links
from kvtrace.cost.links import load_link as load_link
from kvtrace.cost.names import build_index, find_name
from kvtrace.cost.storage import StorageTier, list_tiers, load_tier
from kvtrace.cost.topology import Topology, read_topology
from kvtrace.errors import ModelError

if TYPE_CHECKING:
    from kvtrace.cost.efficiency import EfficiencyTable


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: peaks of dense arithmetic, memory, and where it sits."""

    name: str
    vendor: str
    family: str
    """Such as sm90; efficiencies are kept per family."""
    bf16_flops: Constant
    fp8_flops: Constant | None
    fp4_flops: Constant | None
    hbm_bytes: Constant
    hbm_bytes_per_s: Constant
    scaleup_bytes_per_s: Constant | None
    """NVLink or its like, a direction; null without one."""
    tdp_watts: float

    def constants(self) -> tuple[Constant, ...]:
        """All numbers with evidence; a peak that the GPU lacks is left out."""
        known = (
            self.bf16_flops,
            self.fp8_flops,
            self.fp4_flops,
            self.hbm_bytes,
            self.hbm_bytes_per_s,
            self.scaleup_bytes_per_s,
        )
        return tuple(constant for constant in known if constant is not None)

    def peak_flops(self, weight_dtype: str) -> tuple[str, float]:
        """The compute format of `weight_dtype` here, and its dense peak in FLOP/s."""
        fp8 = None if self.fp8_flops is None else self.fp8_flops.value
        fp4 = None if self.fp4_flops is None else self.fp4_flops.value
        kind = compute_dtype(weight_dtype, fp8_flops=fp8, fp4_flops=fp4)
        peaks = {"bf16": self.bf16_flops.value, "fp8": fp8, "fp4": fp4}
        peak = peaks[kind]
        if peak is None:
            raise ModelError("KVT-C040", f"{self.name} has no {kind} peak")
        return kind, peak


@dataclass(frozen=True, slots=True)
class Network:
    """The ports of one kind in a node."""

    port: Link
    ports_per_node: Constant
    setup_s: Constant
    """Fixed seconds of one pull or push."""


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """A GPU in its node: everything that moving and computing KV takes time on."""

    name: str
    gpu: Gpu
    gpus_per_node: int
    host_link: Link
    """Between host memory and one GPU."""
    tcp: Network
    rdma: Network
    dram_bytes_per_node: Constant
    dram_idle_share: Constant
    dram_read_bytes_per_s: Constant
    """Out of a node's DRAM, to GPUs or NICs."""
    dram_write_bytes_per_s: Constant
    """Into a node's DRAM."""
    chunk_bytes: Constant
    load_efficiency: Constant
    load_contention: Constant
    handover_s: Constant
    dram_lookup_s: Constant
    pool_lookup_s: Constant
    gpu_memory_utilisation: Constant
    activation_reserve_bytes: Constant
    host: str
    """Name of the host of data/hosts.toml."""
    topology: Topology
    tiers: tuple[StorageTier, ...]
    """Stores below host memory: the built-in ones, and what a user's file overrides or adds."""
    pool_nvme_tier: str
    """The drive of a pool node with flash."""
    pool_nvme_per_node: Constant
    gpu_usd_per_hour: Constant
    efficiencies: EfficiencyTable | None = None
    """What engines reach here of the peaks, as a calibration found; null: data/efficiency.toml."""
    calibrated_llm: str | None = None
    """The LLM whose times the calibration was fitted to; null: none, or it does not say."""

    def with_link_speed(self, factor: float) -> HardwareProfile:
        """The same node with all links and DRAM `factor` times as fast."""
        return replace(
            self,
            host_link=self.host_link.scaled(factor),
            tcp=replace(self.tcp, port=self.tcp.port.scaled(factor)),
            rdma=replace(self.rdma, port=self.rdma.port.scaled(factor)),
            dram_read_bytes_per_s=self.dram_read_bytes_per_s.scaled(factor),
            dram_write_bytes_per_s=self.dram_write_bytes_per_s.scaled(factor),
        )

    def tier(self, name: str) -> StorageTier:
        """A store by its name.

        Raises:
            UsageError: unknown, with close names.
        """
        exact = next((tier for tier in self.tiers if tier.tier == name), None)
        if exact is not None:
            return exact
        index = build_index((tier.tier, ()) for tier in self.tiers)
        found = find_name(
            name,
            index,
            what="storage tier",
            code="KVT-C052",
            hint="list them with `kvtrace hardware`, or add `[storage.NAME]` to a hardware TOML",
        )
        return next(tier for tier in self.tiers if tier.tier == found)

    @property
    def nvme(self) -> StorageTier:
        """One of the node's own drives."""
        return self.tier(self.topology.nvme_tier)

    def load_bytes_per_s(self, ranks: int) -> float:
        """Rate of `ranks` GPUs that load their shares from host memory at once, together.

        Formula: ranks x link(chunk) x efficiency / (1 + contention x (ranks - 1)); rising in ranks.
        Source: fitted, see data/moves.toml. GPUs of further nodes have host memory of their own.
        """
        here = min(ranks, self.gpus_per_node)
        solo = self.host_link.bytes_per_s(self.chunk_bytes.value) * self.load_efficiency.value
        per_rank = solo / (1.0 + self.load_contention.value * (here - 1))
        return ranks * per_rank


def list_gpus() -> tuple[str, ...]:
    """Names of the built-in GPUs."""
    return tuple(row["gpu"] for row in read_table("gpus.csv"))


def load_hardware(name_or_file: str) -> HardwareProfile:
    """The profile of a built-in GPU in its usual host, or a user's TOML over one.

    Raises:
        UsageError: unknown GPU, with close names; or a file with unknown keys or unclear units.
    """
    path = Path(name_or_file)
    if path.suffix == ".toml":
        from kvtrace.cost.hardware_file import load_hardware_file

        return load_hardware_file(path)
    name = find_name(
        name_or_file,
        _index(),
        what="GPU",
        code="KVT-C041",
        hint='name a built-in GPU or pass a TOML file: `gpu = "H100-SXM5"` and what differs',
    )
    return _built_in(name)


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
        pool_nvme_per_node=_pool_drives(),
        gpu_usd_per_hour=_gpu_price(name),
    )


def _pool_node() -> dict[str, object]:
    return read_toml("storage.toml")["pool_nodes"]["ssd"]


def _pool_drives() -> Constant:
    entry = _pool_node()
    drives = entry["nvme_per_node"]
    if not isinstance(drives, dict):
        raise ValueError("storage.toml: pool_nodes.ssd.nvme_per_node is not a table")
    return read_constant(
        drives,
        id="pool_nodes.ssd.nvme_per_node",
        unit="drives",
        title="NVMe drives of a pool node",
        source=str(entry["source"]),
        as_of=str(entry["as_of"]),
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
