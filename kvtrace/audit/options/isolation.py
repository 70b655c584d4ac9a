"""Which prompts are long enough to be kept apart from the others, and what carries them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvtrace.audit.thresholds import LONG_PROMPT_QUANTILE, LONG_PROMPT_TIMES
from kvtrace.replay.scenario import PrefillTime
from kvtrace.schema.arrays import RequestTrace


class LongPrompts(NamedTuple):
    """The prompts that isolation keeps apart."""

    above_tokens: int | None
    """A prompt of more tokens is long; null: none stands out."""
    instances: int
    """As many as carry the long prompts' share of all prefill; 0: too few to spare one."""


def long_prompts(trace: RequestTrace, prefill: PrefillTime, instances: int) -> LongPrompts:
    """Long: beyond the quantile of lengths, where that is well above the median.

    Formula of the instances: share of prefill seconds of long prompts x instances, rounded, one at
    least and one less than all at most.
    """
    sizes = trace.prompt_tokens
    if not len(sizes):
        return LongPrompts(None, 0)
    above = int(np.quantile(sizes, LONG_PROMPT_QUANTILE.value))
    is_long = sizes > above
    if not is_long.any() or above < LONG_PROMPT_TIMES.value * float(np.median(sizes)):
        return LongPrompts(None, 0)
    if instances < 2:
        return LongPrompts(above, 0)
    lengths, first = np.unique(sizes, return_inverse=True)
    seconds = np.array([prefill.prefill_s(float(n), 0.0) for n in lengths])[first]
    share = float(seconds[is_long].sum() / seconds.sum())
    return LongPrompts(above, min(max(round(share * instances), 1), instances - 1))
