"""Seconds of a decode step: weights and KV at the attainable memory rate, traffic, overhead."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.cost.dtypes import weight_element_bytes
from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.llm import LlmShape

_HEAD_BYTES = 2.0
"""Bytes of one parameter of the output head, which engines leave in 16 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeModel:
    """Decode seconds of one instance.

    Formula: fixed + max(weights read, 2 P_active batch / (tp peak eff)) + KV read + all-reduce.
    The weights read by a batch are P (1 - (1 - P_active / P)^batch): experts are drawn evenly.
    Assumes: no prefill shares the step.
    """

    fixed_s: float
    head_s: float
    weights_all_s: float
    active_share: float
    """P_active / P, 1 for a dense LLM."""
    compute_token_s: float
    kv_terms: tuple[tuple[float, int | None], ...]
    """(Seconds per token of KV, window) of each KV group."""
    state_s: float
    """Reading and writing the recurrent state of one sequence."""
    evidence: tuple[Constant, ...]

    def step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of one step of `batch` sequences that hold `context_tokens` of KV in all."""
        if batch <= 0:
            return 0.0
        return self.weights_s(batch) + self.kv_s(batch, context_tokens)

    def weights_s(self, batch: float) -> float:
        """Seconds of one step without its KV: overhead, and weights or compute."""
        touched = 1.0 - math.pow(1.0 - self.active_share, batch)
        weights = self.head_s + self.weights_all_s * touched
        compute = self.compute_token_s * batch
        return self.fixed_s + (weights if weights > compute else compute)

    def kv_s(self, batch: float, context_tokens: float) -> float:
        """Seconds to read the KV (and states) of `batch` sequences, `context_tokens` in all."""
        kv = self.state_s * batch
        for token_s, window in self.kv_terms:
            kept = context_tokens if window is None else min(context_tokens, window * batch)
            kv += token_s * kept
        return kv


def build_decode(
    llm: LlmShape,
    hardware: HardwareProfile,
    *,
    tp: int,
    weight_dtype: str,
    kv_dtype: str,
    table: EfficiencyTable | None = None,
) -> DecodeModel:
    """The decode model of one instance; a null `table` is that of data/efficiency.toml.

    Raises:
        ModelError: the FLOPs of the LLM are not known.
    """
    active, _ = llm.require_flops()
    table = table or efficiency_table()
    shared = table.shared
    hbm, fixed = table.hbm_read(hardware.gpu.family), shared["decode_fixed_s"]
    hbm_rate = tp * hardware.gpu.hbm_bytes_per_s.value * hbm.value
    compute, peak = hardware.gpu.peak_flops(weight_dtype)
    gemm = table.family(hardware.gpu.family).gemm[compute]
    per_layer = shared["decode_layer_s"]
    used = [hbm, fixed, gemm, per_layer]
    fixed_s = fixed.value + per_layer.value * llm.layers
    if llm.is_moe:
        moe = shared["moe_layer_s"]
        fixed_s += moe.value * llm.layers
        used.append(moe)
    if tp > 1:
        allreduce = shared["allreduce_decode_s"]
        fixed_s += 2 * llm.layers * allreduce.value
        used.append(allreduce)
    return DecodeModel(
        fixed_s=fixed_s,
        head_s=llm.vocab * llm.hidden * _HEAD_BYTES / hbm_rate,
        weights_all_s=llm.nonembed_parameters * weight_element_bytes(weight_dtype) / hbm_rate,
        active_share=min(1.0, active / llm.nonembed_parameters),
        compute_token_s=2.0 * active / (tp * peak * gemm.value),
        kv_terms=tuple(
            (group.bytes_per_token(kv_dtype, tp) / hbm_rate, _read_window(llm, index))
            for index, group in enumerate(llm.groups)
        ),
        state_s=2.0 * llm.state_bytes / hbm_rate,
        evidence=tuple(used),
    )


def _read_window(llm: LlmShape, index: int) -> int | None:
    """Tokens whose KV one step reads: the window kept, or the keys that are attended to."""
    group = llm.groups[index]
    limits = [
        limit for limit in (group.window_tokens, group.pair_window_tokens) if limit is not None
    ]
    return min(limits, default=None)
