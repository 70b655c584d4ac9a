"""GPUs, links and hosts: what they can do, and how much of it an engine reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtrace.cost.dtypes import compute_dtype
from kvtrace.cost.evidence import Constant
from kvtrace.cost.links import Link
from kvtrace.cost.names import build_index, find_name
from kvtrace.cost.storage import StorageTier
from kvtrace.cost.topology import Topology
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
    file_system_write_share: Constant
    """Write rate of a parallel file system over its read rate."""
    gpu_usd_per_hour: Constant
    efficiencies: EfficiencyTable | None = None
    """What engines reach here of the peaks, as a calibration found; null: data/efficiency.toml."""
    calibrated_llm: str | None = None
    """The LLM whose times the calibration was fitted to; null: none, or it does not say."""

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
