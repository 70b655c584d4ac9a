"""Tokens that an unlimited cache would serve, per request."""

from __future__ import annotations

import numpy as np

from kvtrace.schema.arrays import IntArray, RequestTrace


def reusable_tokens(trace: RequestTrace) -> IntArray:
    """(requests,) tokens of the leading blocks that an earlier request of the trace held.

    Dense ids are first-appearance ranks, so a block is reusable iff its id is below the number of
    distinct blocks seen before the request; at least the last prompt token is computed. For a
    window, compute this over history and window, and slice (`WindowedTrace.scored`): reuse older
    than the window then counts.
    """
    counts = np.diff(trace.run_offset)
    owner = np.repeat(np.arange(trace.requests), counts)
    ends = trace.run_start + trace.run_blocks
    seen = np.concatenate((np.zeros(1, dtype=np.int64), np.maximum.accumulate(ends)))
    before = seen[trace.run_offset[:-1]][owner]
    reusable = np.clip(before - trace.run_start, 0, trace.run_blocks)
    breaks = np.concatenate((np.zeros(1, np.int64), np.cumsum(reusable < trace.run_blocks)))
    is_leading = breaks[:-1] == breaks[trace.run_offset[:-1]][owner]
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.where(is_leading, reusable, 0))))
    blocks = total[trace.run_offset[1:]] - total[trace.run_offset[:-1]]
    tokens = np.minimum(blocks * trace.block_size_tokens, trace.prompt_tokens - 1)
    return np.asarray(np.maximum(tokens, 0), dtype=np.int64)
