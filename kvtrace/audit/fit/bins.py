"""Buckets of prompt lengths, as everywhere in the record."""

from __future__ import annotations

import numpy as np

from kvtrace.schema.arrays import IntArray


def prompt_buckets(prompt_tokens: IntArray) -> IntArray:
    """(requests,) the power of two at or below each length; 0 for an empty prompt."""
    _, exponents = np.frexp(prompt_tokens.astype(np.float64))
    powers = np.left_shift(1, np.maximum(exponents - 1, 0).astype(np.int64))
    return np.asarray(np.where(prompt_tokens > 0, powers, 0), dtype=np.int64)
