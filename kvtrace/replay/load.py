"""Instance-seconds that requests need at least."""

from __future__ import annotations

from math import fsum

import numpy as np

from kvtrace.replay.scenario import DecodeTime, PrefillTime
from kvtrace.schema.arrays import IntArray


def prefill_work_s(prompts: IntArray, prefill: PrefillTime) -> float:
    """Seconds to prefill the prompts with nothing cached, one after the other."""
    lengths, counts = np.unique(prompts, return_counts=True)
    return fsum(
        count * prefill.prefill_s(length, 0)
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True)
        if length > 0
    )


def decode_work_s(
    prompts: IntArray, outputs: IntArray, *, decode: DecodeTime, room_tokens: float
) -> float:
    """Seconds for all output tokens after the first ones, at the fullest batch.

    Formula: Σ (output - 1) · step_s(b, b · context) / b, with b the sequences that `room_tokens` of
    KV hold at the mean context (prompt and half the output), 1 at least: the cheapest decode.
    """
    made = outputs.astype(np.float64)
    steps = float(np.maximum(made - 1, 0).sum())
    if not steps:
        return 0.0
    context = float(prompts.astype(np.float64).mean() + made.mean() / 2)
    batch = max(1.0, min(float(len(made)), room_tokens / max(1.0, context)))
    return steps * decode.step_s(batch, batch * context) / batch
