"""Seconds of a prefill: compute, attention, weights, tensor-parallel traffic, host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from kvtrace.cost.dtypes import weight_element_bytes
from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.exchange import ACTIVATION_BYTES, build_exchange
from kvtrace.cost.experts import ExpertTimes
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.layout import Layout
from kvtrace.cost.llm import LlmShape, attended_pairs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PrefillModel:
    """Prefill seconds of one group of an instance, all coefficients worked out beforehand.

    Formula: fixed + host n + max(gemm, weights) + experts + max(attention, KV read) + traffic
        gemm      = 2 P_dense (n + n_half tp) / (tp peak eff)     (efficiency saturates with n)
        weights   = P_dense bytes / (tp HBM rate)
        experts   = touched bytes / (tp HBM rate) + 2 P_routed n (1 + w_half cut / w) / (tp peak
                    eff share), P_routed of one token, w the inner width of one expert
        attention = sum c_g pairs_g(n, p) / (tp bf16 peak eff)
        KV read   = p bytes_per_token / (tp HBM rate in attention)
        traffic   = layers n hidden 2 B passes / HBM rate + `Exchange`; for recurrent layers
                    hidden 2 B passes / (tp HBM rate) a layer and token; for layers with experts
                    moe_passes more route tokens to and from them
    Assumes: one request at a time, unchunked (`kvtrace.cost.step` prices what shares a step); all
    groups of data-parallel attention have as many tokens; stages of a pipeline work one after
    another. docs/model/cost.md has the range of validity.
    """

    host_s: float
    """Host seconds of a prefill, whatever its length."""
    launch_s: float
    """Fixed seconds of the all-reduces."""
    host_token_s: float
    """Host seconds per new token."""
    traffic_token_s: float
    """Element-wise and all-reduce seconds per new token."""
    gemm_fixed_s: float
    gemm_token_s: float
    weights_s: float
    """Reading the dense weights once."""
    experts: ExpertTimes
    pair_terms: tuple[tuple[float, int | None], ...]
    """(Seconds per pair, window) of each KV group."""
    kv_read_token_s: float
    evidence: tuple[Constant, ...]

    @property
    def fixed_s(self) -> float:
        """Seconds of a prefill of no token."""
        return self.host_s + self.launch_s

    @property
    def token_s(self) -> float:
        """Seconds per new token besides GEMM and attention."""
        return self.host_token_s + self.traffic_token_s

    def kernels_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds of the GPU's kernels alone, the host left out."""
        whole = self.prefill_s(float(new_tokens), float(cached_tokens))
        return whole - self.host_s - self.host_token_s * new_tokens if new_tokens > 0 else 0.0

    @overload
    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float: ...
    @overload
    def prefill_s(self, new_tokens: Floats, cached_tokens: Floats | float) -> Floats: ...

    def prefill_s(
        self, new_tokens: float | Floats, cached_tokens: float | Floats
    ) -> float | Floats:
        """Seconds to compute `new_tokens` after `cached_tokens`; 0 for no new token."""
        if isinstance(new_tokens, np.ndarray):
            return self._prefill_array(new_tokens, np.asarray(cached_tokens, dtype=np.float64))
        if new_tokens <= 0:
            return 0.0
        return self.tokens_s(new_tokens) + self.attention_s(new_tokens, float(cached_tokens))

    def tokens_s(self, tokens: float, *, is_start: bool = True, steps: float = 1.0) -> float:
        """Seconds of `tokens` over `steps` steps without attention: host, traffic, GEMM or weights.

        `is_start` False leaves out what a prefill pays once: the fixed overhead and the saturation.
        """
        seconds = (self.host_token_s + self.traffic_token_s) * tokens
        gemm = self.gemm_token_s * tokens
        if is_start:
            seconds = self.host_s + self.launch_s + seconds
            gemm = self.gemm_fixed_s + gemm
        weights = self.weights_s * steps
        seconds += weights if weights > gemm else gemm
        experts = self.experts
        if experts.all_s or experts.token_s:
            seconds += steps * experts.seconds(tokens / steps)
        return seconds

    def attention_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds of one request's attention: its pairs, or reading the KV of what is cached."""
        if new_tokens <= 0:
            return 0.0
        attention = 0.0
        for pair_s, window in self.pair_terms:
            if window is None:
                attention += pair_s * (new_tokens * (cached_tokens + new_tokens / 2))
            else:
                attention += pair_s * attended_pairs(new_tokens, cached_tokens, window)
        read = self.kv_read_token_s * cached_tokens
        return read if read > attention else attention

    @property
    def balance_tokens(self) -> float:
        """Tokens whose GEMMs take as long as reading the weights that one token uses.

        Below it a step is bound by memory, as a decode step is.
        """
        one_s = self.weights_s + self.experts.one_s
        return one_s / (self.gemm_token_s + self.experts.token_s)

    def _prefill_array(self, new: Floats, cached: Floats) -> Floats:
        gemm = self.gemm_fixed_s + self.gemm_token_s * new
        experts = self.experts
        missed = np.power(experts.missed_share, np.maximum(new, 1.0) - 1.0)
        read = experts.all_s - (experts.all_s - experts.one_s) * missed
        attention = np.zeros(np.broadcast_shapes(new.shape, cached.shape))
        for pair_s, window in self.pair_terms:
            attention += pair_s * _pairs(new, cached, window)
        seconds = (
            self.fixed_s
            + (self.token_s + experts.token_s) * new
            + np.maximum(gemm, self.weights_s)
            + read
            + np.maximum(attention, self.kv_read_token_s * cached)
        )
        return np.where(new > 0, seconds, 0.0)


def build_prefill(
    llm: LlmShape,
    hardware: HardwareProfile,
    *,
    layout: Layout,
    weight_dtype: str,
    kv_dtype: str,
    table: EfficiencyTable | None = None,
) -> PrefillModel:
    """The prefill model of one group of an instance; a null `table` is that of efficiency.toml.

    Raises:
        ModelError: the FLOPs of the LLM are not known.
    """
    _, terms = llm.require_flops()
    table = table or efficiency_table()
    efficiency, shared, tp = table.family(hardware.gpu.family), table.shared, layout.tp
    family = hardware.gpu.family
    hbm, kv = table.hbm_read(family), table.kv_read(family)
    rank_hbm_rate = hardware.gpu.hbm_bytes_per_s.value
    attention_rate = tp * hardware.gpu.bf16_flops.value * efficiency.attention.value
    fixed, per_layer = shared["prefill_fixed_s"], shared["prefill_layer_s"]
    host, passes = shared["prefill_token_s"], shared["elementwise_passes"]
    matrices = build_matrices(llm, hardware, layout, weight_dtype, table)
    used = [*matrices.evidence, efficiency.attention, kv, fixed, per_layer, host, passes]
    residual_bytes = llm.layers * llm.hidden * ACTIVATION_BYTES
    traffic_s = residual_bytes * passes.value / (rank_hbm_rate * hbm.value)
    if llm.experts is not None:
        routed = shared["moe_passes"]
        share = llm.experts.layers / llm.layers
        traffic_s += residual_bytes * share * routed.value / (rank_hbm_rate * hbm.value)
        used.append(routed)
    if llm.state_bytes:
        scan = shared["recurrent_passes"]
        layers = llm.layers - sum(group.layers for group in llm.groups)
        scanned = layers * llm.hidden * ACTIVATION_BYTES * scan.value
        traffic_s += scanned / (tp * rank_hbm_rate * hbm.value)
        used.append(scan)
    exchange = build_exchange(llm, hardware, layout, weight_dtype=weight_dtype, table=table)
    starts = {
        "allreduce_prefill_s": exchange.allreduces,
        "alltoall_start_s": exchange.alltoalls,
        "stage_start_s": exchange.handovers,
    }
    used += [*exchange.evidence, *(shared[key] for key, count in starts.items() if count)]
    return PrefillModel(
        host_s=fixed.value + per_layer.value * llm.layers,
        launch_s=sum(count * shared[key].value for key, count in starts.items()),
        host_token_s=host.value,
        traffic_token_s=traffic_s + exchange.token_s,
        gemm_fixed_s=matrices.fixed_s,
        gemm_token_s=matrices.token_s,
        weights_s=matrices.read_s,
        experts=matrices.experts,
        pair_terms=tuple((flops / attention_rate, window) for flops, window in terms),
        kv_read_token_s=llm.kv_bytes_per_token(kv_dtype, tp) / (tp * rank_hbm_rate * kv.value),
        evidence=tuple(used),
    )


@dataclass(frozen=True, slots=True)
class MatrixTimes:
    """Seconds of the matrices of one group's step."""

    fixed_s: float
    """What saturation adds to the dense ones."""
    token_s: float
    """Per token, of the dense ones."""
    read_s: float
    """Reading the dense ones once."""
    experts: ExpertTimes
    evidence: tuple[Constant, ...]


def build_matrices(
    llm: LlmShape,
    hardware: HardwareProfile,
    layout: Layout,
    weight_dtype: str,
    table: EfficiencyTable,
) -> MatrixTimes:
    """Dense matrices over the TP ranks of a group, experts over all ranks of the stage.

    Raises:
        ModelError: active parameters of the LLM are not known.
    """
    active, _ = llm.require_flops()
    efficiency, shared = table.family(hardware.gpu.family), table.shared
    compute, peak = hardware.gpu.peak_flops(weight_dtype)
    gemm, half = efficiency.gemm[compute], efficiency.half_tokens
    hbm = table.hbm_read(hardware.gpu.family)
    rate = layout.tp * peak * gemm.value
    rank_hbm_rate = hardware.gpu.hbm_bytes_per_s.value * hbm.value
    each_s = weight_element_bytes(weight_dtype) / (layout.tp * rank_hbm_rate)
    experts = llm.experts
    routed = 0.0 if experts is None else min(active, experts.active_parameters)
    token_s = 2.0 * (active - routed) / rate
    fixed_s, read_s = token_s * half.value * layout.tp, (active - routed) * each_s
    used = (gemm, half, hbm)
    if experts is None:
        return MatrixTimes(fixed_s, token_s, read_s, ExpertTimes(), used)
    share, narrow = shared["moe_gemm"], shared["moe_half_width"]
    width = experts.width / layout.expert_cut
    group_s = each_s / layout.dp
    return MatrixTimes(
        fixed_s=fixed_s,
        token_s=token_s,
        read_s=read_s,
        experts=ExpertTimes(
            one_s=(llm.touched_parameters(layout.dp) - active + routed) * group_s,
            all_s=(llm.touched_parameters(math.inf) - active + routed) * group_s,
            missed_share=(1.0 - experts.rows_share) ** layout.dp,
            token_s=2.0 * routed / (rate * share.value) * (1.0 + narrow.value / width),
        ),
        evidence=(*used, share, narrow),
    )


def _pairs(new: Floats, cached: Floats, window: int | None) -> Floats:
    """`attended_pairs` over arrays."""
    if window is None:
        return np.asarray(new * (cached + new / 2), dtype=np.float64)

    def upto(tokens: Floats) -> Floats:
        inside = np.minimum(tokens, float(window))
        return np.asarray(inside * inside / 2 + window * (tokens - inside), dtype=np.float64)

    return upto(cached + new) - upto(cached)
