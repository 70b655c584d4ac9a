"""Seconds of a prefill: compute, attention, weights, tensor-parallel traffic, host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from kvtrace.cost.dtypes import weight_element_bytes
from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.llm import LlmShape, attended_pairs

Floats = NDArray[np.float64]
_ACTIVATION_BYTES = 2.0
"""Bytes of one activation element that ranks exchange (bf16)."""


@dataclass(frozen=True, slots=True, eq=False)
class PrefillModel:
    """Prefill seconds of one instance, with all coefficients worked out beforehand.

    Formula: fixed + host n + max(gemm, weights) + max(attention, KV read) + traffic
        gemm      = 2 P_active (n + n_half) / (tp peak eff)     (efficiency saturates with n)
        weights   = min(P, P_active n) bytes / (tp HBM rate)
        attention = sum c_g pairs_g(n, p) / (tp bf16 peak eff)
        KV read   = p bytes_per_token / (tp HBM rate)
        traffic   = layers n hidden 2 B (passes / HBM rate + 2 / all-reduce rate(tp)), and for
                    recurrent layers hidden 2 B passes / (tp HBM rate) a layer and token
    Experts: eff is also moe_gemm / tp^moe_split of a dense LLM's, n_half P / P_active of one
        rank's instead of tp of them, and moe_passes more passes route tokens to and from them.
    Assumes: one request at a time, unchunked (`kvtrace.cost.step` prices what shares a step); see
    docs/model/cost.md for the range of validity.
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
    weights_all_s: float
    weights_token_s: float
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

    def prefill_batch_s(self, new_tokens: float, attention_s: float) -> float:
        """Seconds of prompts that share one step: `new_tokens` in all, `attention_s` summed.

        Formula: as `prefill_s`, with GEMM efficiency by the tokens of the whole step and one fixed
        overhead.
        """
        return self.tokens_s(new_tokens) + attention_s if new_tokens > 0 else 0.0

    def tokens_s(self, tokens: float, *, is_start: bool = True, steps: float = 1.0) -> float:
        """Seconds of `tokens` over `steps` steps without attention: host, traffic, GEMM or weights.

        `is_start` False leaves out what a prefill pays once: the fixed overhead and the saturation.
        """
        fixed, ramp = (self.fixed_s, self.gemm_fixed_s) if is_start else (0.0, 0.0)
        gemm = ramp + self.gemm_token_s * tokens
        weights = min(self.weights_all_s * steps, self.weights_token_s * tokens)
        return fixed + self.token_s * tokens + max(gemm, weights)

    def attention_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds of one request's attention: its pairs, or reading the KV of what is cached."""
        attention = 0.0
        for pair_s, window in self.pair_terms:
            attention += pair_s * attended_pairs(new_tokens, cached_tokens, window)
        return max(attention, self.kv_read_token_s * cached_tokens) if new_tokens > 0 else 0.0

    @property
    def balance_tokens(self) -> float:
        """Tokens whose GEMMs take as long as reading the weights that one token uses.

        Below it a step is bound by memory, as a decode step is.
        """
        return self.weights_token_s / self.gemm_token_s

    def _prefill_array(self, new: Floats, cached: Floats) -> Floats:
        gemm = self.gemm_fixed_s + self.gemm_token_s * new
        weights = np.minimum(self.weights_all_s, self.weights_token_s * new)
        attention = np.zeros(np.broadcast_shapes(new.shape, cached.shape))
        for pair_s, window in self.pair_terms:
            attention += pair_s * _pairs(new, cached, window)
        seconds = (
            self.fixed_s
            + self.token_s * new
            + np.maximum(gemm, weights)
            + np.maximum(attention, self.kv_read_token_s * cached)
        )
        return np.where(new > 0, seconds, 0.0)


def build_prefill(
    llm: LlmShape,
    hardware: HardwareProfile,
    *,
    tp: int,
    weight_dtype: str,
    kv_dtype: str,
    table: EfficiencyTable | None = None,
) -> PrefillModel:
    """The prefill model of one instance; a null `table` is that of data/efficiency.toml.

    Raises:
        ModelError: the FLOPs of the LLM are not known.
    """
    active, terms = llm.require_flops()
    table = table or efficiency_table()
    efficiency, shared = table.family(hardware.gpu.family), table.shared
    compute, peak = hardware.gpu.peak_flops(weight_dtype)
    gemm, moe = efficiency.gemm[compute], shared["moe_gemm"]
    gemm_rate = tp * peak * gemm.value * (moe.value if llm.is_moe else 1.0)
    half = efficiency.half_tokens.value * (llm.sparsity if llm.is_moe else tp)
    hbm = table.hbm_read(hardware.gpu.family)
    rank_hbm_rate = hardware.gpu.hbm_bytes_per_s.value * hbm.value
    hbm_rate = tp * rank_hbm_rate
    weight_bytes = weight_element_bytes(weight_dtype)
    attention_rate = tp * hardware.gpu.bf16_flops.value * efficiency.attention.value
    fixed, per_layer = shared["prefill_fixed_s"], shared["prefill_layer_s"]
    host, passes = shared["prefill_token_s"], shared["elementwise_passes"]
    used = [gemm, efficiency.attention, efficiency.half_tokens, hbm, fixed, per_layer, host, passes]
    residual_bytes = llm.layers * llm.hidden * _ACTIVATION_BYTES
    traffic_s, launch_s = residual_bytes * passes.value / rank_hbm_rate, 0.0
    if llm.is_moe:
        split, routed = shared["moe_split"], shared["moe_passes"]
        gemm_rate /= tp**split.value
        traffic_s += residual_bytes * routed.value / rank_hbm_rate
        used += [moe, split, routed]
    if llm.state_bytes:
        scan = shared["recurrent_passes"]
        layers = llm.layers - sum(group.layers for group in llm.groups)
        traffic_s += layers * llm.hidden * _ACTIVATION_BYTES * scan.value / hbm_rate
        used.append(scan)
    if tp > 1:
        share, rate = table.allreduce(hardware, tp)
        start = shared["allreduce_prefill_s"]
        traffic_s += 2 * residual_bytes / rate
        launch_s = 2 * llm.layers * start.value
        used += [share, start]
    return PrefillModel(
        host_s=fixed.value + per_layer.value * llm.layers,
        launch_s=launch_s,
        host_token_s=host.value,
        traffic_token_s=traffic_s,
        gemm_fixed_s=2.0 * active * half / gemm_rate,
        gemm_token_s=2.0 * active / gemm_rate,
        weights_all_s=llm.nonembed_parameters * weight_bytes / hbm_rate,
        weights_token_s=active * weight_bytes / hbm_rate,
        pair_terms=tuple((flops / attention_rate, window) for flops, window in terms),
        kv_read_token_s=llm.kv_bytes_per_token(kv_dtype, tp) / hbm_rate,
        evidence=tuple(used),
    )


def _pairs(new: Floats, cached: Floats, window: int | None) -> Floats:
    """`attended_pairs` over arrays."""
    if window is None:
        return np.asarray(new * (cached + new / 2), dtype=np.float64)

    def upto(tokens: Floats) -> Floats:
        inside = np.minimum(tokens, float(window))
        return np.asarray(inside * inside / 2 + window * (tokens - inside), dtype=np.float64)

    return upto(cached + new) - upto(cached)
