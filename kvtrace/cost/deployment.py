"""An LLM on some GPUs: the models of prefill, decode and moves, and the room for KV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from kvtrace.cost.decode import DecodeModel, build_decode
from kvtrace.cost.dtypes import normalise_dtype, weight_element_bytes
from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.evidence import Constant, EvidenceKind
from kvtrace.cost.exchange import ACTIVATION_BYTES
from kvtrace.cost.hardware import Gpu, HardwareProfile
from kvtrace.cost.hardware_file.calibration import with_llm_told
from kvtrace.cost.layout import Layout, default_ep
from kvtrace.cost.llm import LlmShape
from kvtrace.cost.llms import load_llm
from kvtrace.cost.placement import (
    KvPlacement,
    require_kv_dtype,
    require_stages,
    require_whole_heads,
)
from kvtrace.cost.prefill import PrefillModel, build_prefill
from kvtrace.cost.profiles import load_hardware
from kvtrace.cost.providers.pricing import (
    OWN_PROVIDER,
    DecodePricing,
    PrefillPricing,
    Pricing,
    StepPricing,
    build_pricing,
)
from kvtrace.cost.step import PREFILL_CHUNK_TOKENS, StepModel
from kvtrace.cost.transfer import PATH_IDS, Direction, MovePath, build_path
from kvtrace.errors import ModelError
from kvtrace.units import format_bytes

KV_ROOM_SHARE = 0.3
"""Least share of HBM that `default_tp` leaves beside the weights."""
_LARGEST_TP = 64
T = TypeVar("T")


@dataclass(frozen=True)
class Deployment:
    """One instance: an LLM, its number formats, and the GPUs that hold it."""

    llm: LlmShape
    hardware: HardwareProfile
    tp: int
    """Tensor-parallel ranks, one GPU each."""
    weight_dtype: str
    kv_dtype: str
    measured_kv_tokens: int | None = None
    """KV capacity of the instance as its engine printed it at start-up; null: computed."""
    measured_chunk_tokens: int | None = None
    """Prompt tokens of one engine step, as printed at start-up; null: `PREFILL_CHUNK_TOKENS`."""
    measured_running_requests: int | None = None
    """Requests that run at once at most, as printed at start-up; null: as many as HBM holds."""
    efficiencies: EfficiencyTable | None = None
    """What engines reach of the peaks; null: as the hardware has it, else data/efficiency.toml."""
    provider: str = OWN_PROVIDER
    """Where the seconds of prefill, decode and steps come from; see `kvtrace.cost.providers`."""
    pp: int = 1
    """Pipeline stages."""
    dp: int = 1
    """Groups whose attention is data-parallel; times and paths are those of one group."""
    ep: int | None = None
    """Ranks that whole experts are spread over; null: all with data-parallel attention, else 1."""

    def __post_init__(self) -> None:
        if self.efficiencies is None and self.hardware.efficiencies is not None:
            table = with_llm_told(
                self.hardware.efficiencies, self.hardware.calibrated_llm, self.llm.name
            )
            object.__setattr__(self, "efficiencies", table)
        self.layout  # noqa: B018  refuses what does not multiply
        require_whole_heads(self.llm, self.tp)
        normalise_dtype(self.weight_dtype)
        require_stages(self.llm, self.pp)
        require_kv_dtype(self.llm, self.kv_dtype)

    @cached_property
    def layout(self) -> Layout:
        """How the ranks share the LLM.

        Raises:
            UsageError: a number below one, or an EP that does not divide the ranks of a stage.
        """
        ep = default_ep(self.tp, self.dp) if self.ep is None else self.ep
        return Layout(self.tp, self.pp, self.dp, ep if self.llm.is_moe else 1)

    @property
    def knows_times(self) -> bool:
        """Whether a prefill can be priced: FLOPs are published, or the provider needs none."""
        return self.llm.knows_flops or self.provider != OWN_PROVIDER

    @cached_property
    def pricing(self) -> Pricing:
        """Seconds of prefill, decode and mixed steps, by the provider.

        Raises:
            UsageError: the provider's package is absent.
            ModelError: the FLOPs of the LLM are not known, or the provider lacks tables.
        """
        if self.provider != OWN_PROVIDER:
            return build_pricing(self.provider, self)
        prefill, decode = self.own_prefill, self.own_decode
        return Pricing(prefill, decode, StepModel(prefill, decode), OWN_PROVIDER)

    @cached_property
    def own_prefill(self) -> PrefillModel:
        """Prefill by kvtrace's own model, whoever the provider is.

        Raises:
            ModelError: the FLOPs of the LLM are not known.
        """
        return self._priced_by(build_prefill)

    @cached_property
    def own_decode(self) -> DecodeModel:
        """Decode by kvtrace's own model, whoever the provider is.

        Raises:
            ModelError: the FLOPs of the LLM are not known.
        """
        return self._priced_by(build_decode)

    def _priced_by(self, build: Callable[..., T]) -> T:
        return build(
            self.llm,
            self.hardware,
            layout=self.layout,
            weight_dtype=self.weight_dtype,
            kv_dtype=self.kv_dtype,
            table=self.efficiencies,
        )

    @property
    def prefill(self) -> PrefillPricing:
        """Prefill seconds of the instance.

        Raises:
            ModelError: the FLOPs of the LLM are not known.
        """
        return self.pricing.prefill

    @property
    def decode(self) -> DecodePricing:
        """Decode seconds of the instance.

        Raises:
            ModelError: the FLOPs of the LLM are not known.
        """
        return self.pricing.decode

    @property
    def step(self) -> StepPricing:
        """Seconds of the steps that prompts share with decoding requests.

        Raises:
            ModelError: the FLOPs of the LLM are not known.
        """
        return self.pricing.step

    @property
    def gpus(self) -> int:
        """GPUs of the instance."""
        return self.layout.gpus

    @property
    def busy_gpus(self) -> int:
        """GPUs that one request's prefill takes from others at a time.

        The TP ranks of one stage of its group: other stages and groups work on other requests.
        """
        return self.tp

    @property
    def kv_ranks(self) -> int:
        """Ranks that hold KV of one sequence, and move their shares of it at once."""
        return self.tp * self.pp

    @cached_property
    def kv_bytes_per_token(self) -> float:
        """Bytes of a token in a cache of blocks, over all ranks, replication included."""
        return self.llm.cached_token_bytes(self.kv_dtype, self.tp)

    @cached_property
    def kv_bytes_per_token_unreplicated(self) -> float:
        """Bytes of a token in a cache of blocks, of one copy."""
        return self.llm.cached_token_bytes(self.kv_dtype, 1)

    def kv_bytes(self, tokens: int, *, block_size_tokens: int | None = None) -> int:
        """Bytes of the KV of `tokens` over all ranks, replication included."""
        return self.llm.kv_bytes(
            tokens, kv_dtype=self.kv_dtype, tp=self.tp, block_size_tokens=block_size_tokens
        )

    @cached_property
    def weight_bytes(self) -> float:
        """Bytes of the weights over all ranks; each group has dense weights of its own."""
        whole = self.llm.weight_bytes(self.weight_dtype)
        return whole + (self.dp - 1) * (whole - self._expert_bytes)

    @property
    def weight_bytes_per_rank(self) -> float:
        """Bytes of the weights of one rank.

        Formula: dense / (TP PP) + experts / (TP PP DP).
        Assumes: layers and experts are spread evenly.
        """
        return self.weight_bytes / self.gpus

    @property
    def _expert_bytes(self) -> float:
        experts = self.llm.experts
        if experts is None:
            return 0.0
        routed = min(experts.routed_parameters, self.llm.parameters)
        return routed * weight_element_bytes(self.weight_dtype)

    def kv_bytes_per_rank(self, tokens: int, *, block_size_tokens: int | None = None) -> int:
        """Bytes of the KV of `tokens` on the rank that holds most of it."""
        return KvPlacement(self.tp, self.pp).bytes_fullest_rank(
            self.llm, tokens, kv_dtype=self.kv_dtype, block_size_tokens=block_size_tokens
        )

    def handover_bytes(self, tokens: float) -> float:
        """Bytes of activations that `tokens` of prefill hand from one pipeline stage to the next.

        Formula: tokens x hidden x 2 B; 0 without stages.
        """
        return tokens * self.llm.hidden * ACTIVATION_BYTES if self.pp > 1 else 0.0

    def front_s(self, prompt_tokens: float) -> float:
        """Seconds of a prompt in front of the engine: HTTP, text to tokens, hashes of blocks.

        They hold no GPU, and a cached prefix saves none of them.
        Formula: front + front per token x prompt tokens; fitted, see data/efficiency.toml.
        """
        fixed, each = self.front_evidence
        return fixed.value + each.value * prompt_tokens

    @property
    def front_evidence(self) -> tuple[Constant, Constant]:
        """Seconds of a request, and of each of its prompt tokens, in front of the engine."""
        shared = (self.efficiencies or efficiency_table()).shared
        return shared["frontend_s"], shared["frontend_token_s"]

    @cached_property
    def hbm_cache_bytes(self) -> float:
        """HBM of the instance that is left for KV: as measured at start-up, else computed.

        Formula: GPUs x (HBM x utilisation - activation reserve) - weights.

        Raises:
            ModelError: the weights do not fit.
        """
        if self.measured_kv_tokens is not None:
            return self.measured_kv_tokens * self.kv_bytes_per_token
        hardware = self.hardware
        usable = hardware.gpu.hbm_bytes.value * hardware.gpu_memory_utilisation.value
        left = self.gpus * (usable - hardware.activation_reserve_bytes.value) - self.weight_bytes
        if left <= 0:
            raise ModelError(
                "KVT-C061",
                f"{self.llm.name} in {self.weight_dtype} does not fit on "
                f"{self.gpus} x {hardware.gpu.name}",
                cause=f"weights {format_bytes(self.weight_bytes)}, "
                f"usable {format_bytes(self.gpus * usable)}",
                hint=_fit_hint(self.llm, hardware, self.weight_dtype),
            )
        return left

    @property
    def prefill_chunk_tokens(self) -> int:
        """Prompt tokens of one engine step."""
        return self.measured_chunk_tokens or PREFILL_CHUNK_TOKENS

    @property
    def group_cache_bytes(self) -> float:
        """HBM for KV of one group of data-parallel attention, which routes and caches by itself."""
        return self.hbm_cache_bytes / self.dp

    def _hbm_evidence(self) -> list[Constant]:
        """What the HBM for KV follows from."""
        is_measured = self.measured_kv_tokens is not None
        room = Constant(
            id="instance.hbm_cache_bytes",
            title="HBM of an instance for KV",
            value=self.hbm_cache_bytes,
            unit="B",
            low=None,
            high=None,
            kind="measured" if is_measured else "assumed",
            source=f"start-up log: {self.measured_kv_tokens:,} tokens"
            if is_measured
            else "computed: HBM x utilisation - activations - weights",
            as_of="this run",
        )
        if is_measured:
            return [room]
        hardware = self.hardware
        return [room, hardware.gpu_memory_utilisation, hardware.activation_reserve_bytes]

    def _scheduler_evidence(self) -> list[Constant]:
        """What the engine's scheduler takes at a time."""
        is_printed = self.measured_chunk_tokens is not None
        chunk = Constant(
            id="instance.prefill_chunk_tokens",
            title="prompt tokens of one engine step",
            value=float(self.prefill_chunk_tokens),
            unit="tokens",
            low=None,
            high=None,
            kind="measured" if is_printed else "spec",
            source="start-up log"
            if is_printed
            else "vLLM 0.10 and later: default of max_num_batched_tokens on GPUs of 70 GiB",
            as_of="this run" if is_printed else "2026",
        )
        running = self.measured_running_requests
        if running is None:
            return [chunk]
        most = replace(
            chunk,
            id="instance.running_requests",
            title="requests that run at once in an instance, at most",
            value=float(running),
            unit="requests",
            kind="measured",
            source="start-up log",
            as_of="this run",
        )
        return [chunk, most]

    def path(self, path_id: str, *, direction: Direction = "read") -> MovePath:
        """How KV moves between HBM and a tier.

        Raises:
            UsageError: unknown path id.
        """
        return build_path(path_id, self.hardware, tp=self.kv_ranks, direction=direction)

    @cached_property
    def paths(self) -> tuple[MovePath, ...]:
        """All paths, reading."""
        return tuple(self.path(path_id) for path_id in PATH_IDS)

    def constants(self) -> tuple[Constant, ...]:
        """All numbers that went in, each once, in a stable order."""
        gpu, hardware = self.hardware.gpu, self.hardware
        peaks = [peak for peak in (gpu.bf16_flops, gpu.fp8_flops, gpu.fp4_flops) if peak]
        scaleup = [gpu.scaleup_bytes_per_s] if gpu.scaleup_bytes_per_s else []
        memory = [
            hardware.dram_bytes_per_node,
            hardware.dram_idle_share,
            *self._hbm_evidence(),
        ]
        groups: list[Iterable[Constant]] = [
            _llm_constants(self),
            peaks,
            [gpu.hbm_bytes, gpu.hbm_bytes_per_s, *scaleup],
            memory,
            self._scheduler_evidence(),
            *(path.evidence for path in self.paths),
        ]
        if self.knows_times:
            groups += [self.prefill.evidence, self.decode.evidence]
        seen: dict[str, Constant] = {}
        for group in groups:
            for constant in group:
                seen.setdefault(constant.id, constant)
        return tuple(seen.values())


def build_deployment(
    llm: str | LlmShape,
    hardware: str | HardwareProfile,
    *,
    tp: int | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    pp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    provider: str = OWN_PROVIDER,
) -> Deployment:
    """A deployment by names; null takes the LLM's published formats and `default_tp`.

    Raises:
        UsageError: unknown name or number format.
        ModelError: no number of ranks holds the weights.
    """
    shape = load_llm(llm) if isinstance(llm, str) else llm
    profile = load_hardware(hardware) if isinstance(hardware, str) else hardware
    weights = normalise_dtype(weight_dtype or shape.native_weight_dtype)
    ranks = default_tp(shape, profile.gpu, weight_dtype=weights) if tp is None else tp
    kv = normalise_dtype(kv_dtype or shape.native_kv_dtype)
    return Deployment(shape, profile, ranks, weights, kv, pp=pp, dp=dp, ep=ep, provider=provider)


def default_tp(llm: LlmShape, gpu: Gpu, *, weight_dtype: str | None = None) -> int:
    """The smallest power of two whose HBM holds the weights with 30 % left for KV.

    Raises:
        ModelError: not even 64 GPUs hold them.
    """
    weights = llm.weight_bytes(weight_dtype or llm.native_weight_dtype)
    tp = 1
    while weights > (1.0 - KV_ROOM_SHARE) * tp * gpu.hbm_bytes.value:
        tp *= 2
        if tp > _LARGEST_TP:
            raise ModelError(
                "KVT-C062",
                f"{llm.name} does not fit on {_LARGEST_TP} x {gpu.name}",
                cause=f"weights {format_bytes(weights)}",
                hint="use a smaller weight format or a larger GPU",
            )
    return tp


def _fit_hint(llm: LlmShape, hardware: HardwareProfile, weight_dtype: str) -> str:
    try:
        tp = default_tp(llm, hardware.gpu, weight_dtype=weight_dtype)
    except ModelError:
        return "use a smaller weight format or a larger GPU"
    return f"use `--tp {tp}`, a smaller weight format, or a larger GPU"


def _llm_constants(deployment: Deployment) -> tuple[Constant, ...]:
    llm = deployment.llm

    def build(key: str, title: str, value: float, unit: str) -> Constant:
        kind: EvidenceKind = llm.kind
        return Constant(
            id=f"llm.{key}",
            title=f"{llm.name}: {title}",
            value=value,
            unit=unit,
            low=None,
            high=None,
            kind=kind,
            source=llm.source,
            as_of=llm.as_of,
        )

    constants = [
        build("parameters", "parameters", llm.parameters, "parameters"),
        build("active_parameters", "parameters per token", llm.active_parameters, "parameters"),
        build(
            "kv_bytes_per_token",
            f"KV per token in {deployment.kv_dtype}, one copy",
            deployment.kv_bytes_per_token_unreplicated,
            "B/token",
        ),
    ]
    if not math.isclose(deployment.kv_bytes_per_token, deployment.kv_bytes_per_token_unreplicated):
        constants.append(
            build(
                "kv_replicas",
                f"copies of the KV over TP{deployment.tp}",
                deployment.kv_bytes_per_token / deployment.kv_bytes_per_token_unreplicated,
                "copies",
            )
        )
    return tuple(constants)
