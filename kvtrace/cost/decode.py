"""Seconds of a decode step: weights and KV at the attainable memory rate, traffic, overhead."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.exchange import build_exchange
from kvtrace.cost.experts import ExpertTimes
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.layout import Layout
from kvtrace.cost.llm import LlmShape
from kvtrace.cost.prefill import build_matrices

_HEAD_BYTES = 2.0
"""Bytes of one parameter of the output head, which engines leave in 16 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeModel:
    """Decode seconds of one instance.

    Formula: fixed + max(head + dense weights read, 2 P_dense batch / (tp peak eff)) + experts
        + KV read + exchange
    Of experts a batch reads those that it touches (`ExpertTimes`). `batch` is that of one group of
    data-parallel attention, each with as many. A pipeline of S stages works on S parts of the batch
    at once, so that a token takes one pass of a batch / S through all stages.
    Assumes: no prefill shares the step; the parts of a batch are equal.
    """

    fixed_s: float
    head_s: float
    dense_s: float
    """Reading the dense weights."""
    compute_token_s: float
    """Computing the dense matrices, per token."""
    experts: ExpertTimes
    exchange_token_s: float
    """All-reduce, dispatch, combine and hand-over of one token."""
    kv_terms: tuple[tuple[float, int | None], ...]
    """(Seconds per token of KV, window) of each KV group."""
    state_s: float
    """Reading and writing the recurrent state of one sequence."""
    evidence: tuple[Constant, ...]
    stages: int = 1
    """Of the pipeline."""

    def step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of one token of each of `batch` sequences, `context_tokens` of KV in all."""
        if batch <= 0:
            return 0.0
        if self.stages > 1:
            part = self.part_of(batch)
            return self.weights_s(part) + self.kv_s(part, context_tokens * part / batch)
        return self.weights_s(batch) + self.kv_s(batch, context_tokens)

    def part_of(self, batch: float) -> float:
        """Sequences of a batch that pass the stages together: batch / S, at least one."""
        return max(batch / self.stages, min(batch, 1.0))

    def weights_s(self, batch: float) -> float:
        """Seconds of one step without its KV: overhead, and weights or compute."""
        weights = self.head_s + self.dense_s
        compute = self.compute_token_s * batch
        seconds = self.fixed_s + (weights if weights > compute else compute)
        experts = self.experts
        if experts.all_s or experts.token_s:
            seconds += experts.seconds(batch)
        return seconds + self.exchange_token_s * batch

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
    layout: Layout,
    weight_dtype: str,
    kv_dtype: str,
    table: EfficiencyTable | None = None,
) -> DecodeModel:
    """The decode model of one group of an instance; a null `table` is that of efficiency.toml.

    Raises:
        ModelError: the FLOPs of the LLM are not known.
    """
    table = table or efficiency_table()
    shared, tp = table.shared, layout.tp
    family = hardware.gpu.family
    hbm, kv = table.hbm_read(family), table.kv_read(family)
    rate = tp * hardware.gpu.hbm_bytes_per_s.value
    matrices = build_matrices(llm, hardware, layout, weight_dtype, table)
    exchange = build_exchange(llm, hardware, layout, weight_dtype=weight_dtype, table=table)
    counts = {
        "decode_fixed_s": 1,
        "decode_layer_s": llm.layers,
        "moe_layer_s": 0 if llm.experts is None else llm.experts.layers,
        "indexer_layer_s": max(
            (group.layers for group in llm.groups if group.group == "indexer"), default=0
        ),
        "allreduce_decode_s": exchange.allreduces,
        "alltoall_start_s": exchange.alltoalls,
        "stage_start_s": exchange.handovers,
    }
    used = [*matrices.evidence, kv, *exchange.evidence]
    used += [shared[key] for key, count in counts.items() if count]
    return DecodeModel(
        fixed_s=math.fsum(shared[key].value * count for key, count in counts.items()),
        head_s=llm.vocab * llm.hidden * _HEAD_BYTES / (rate * hbm.value),
        dense_s=matrices.read_s,
        compute_token_s=matrices.token_s,
        experts=matrices.experts,
        exchange_token_s=exchange.token_s,
        kv_terms=tuple(
            (group.bytes_per_token(kv_dtype, tp) / (rate * kv.value), _read_window(llm, index))
            for index, group in enumerate(llm.groups)
        ),
        state_s=2.0 * llm.state_bytes / (rate * kv.value),
        evidence=tuple(used),
        stages=layout.pp,
    )


def _read_window(llm: LlmShape, index: int) -> int | None:
    """Tokens whose KV one step reads: the window kept, or the keys that are attended to."""
    group = llm.groups[index]
    limits = [
        limit for limit in (group.window_tokens, group.pair_window_tokens) if limit is not None
    ]
    return min(limits, default=None)
