"""Best cases in GPU time: what prefill costs in all, and what an unlimited, free cache would spare.

Both are upper bounds on what any pool can free, so that a verdict may rest on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kvtrace.cost.deployment import Deployment
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import PrefillTime
from kvtrace.schema.arrays import IntArray, RequestTrace


def reusable_tokens_per_request(trace: RequestTrace) -> IntArray:
    """(requests,) tokens of the leading blocks that an earlier request held.

    Dense ids are first-appearance ranks, so a block is reusable iff its id is below the number of
    distinct blocks seen before the request; at least the last prompt token is computed.
    """
    counts = np.diff(trace.run_offset)
    request_of_run = np.repeat(np.arange(trace.requests), counts)
    ends = trace.run_start + trace.run_blocks
    seen = _seen_before(trace, ends)[request_of_run]
    reusable = np.clip(seen - trace.run_start, 0, trace.run_blocks)
    is_whole = reusable == trace.run_blocks
    broken = np.concatenate(([0], np.cumsum(~is_whole)))
    breaks_before = broken[:-1] - broken[trace.run_offset[:-1]][request_of_run]
    leading = np.where(breaks_before == 0, reusable, 0)
    totals = np.concatenate(([0], np.cumsum(leading)))
    blocks = totals[trace.run_offset[1:]] - totals[trace.run_offset[:-1]]
    tokens = np.minimum(blocks * trace.block_size_tokens, trace.prompt_tokens - 1)
    return np.asarray(np.maximum(tokens, 0), dtype=np.int64)


def _seen_before(trace: RequestTrace, ends: IntArray) -> IntArray:
    """(requests,) distinct blocks that earlier requests held."""
    highest = np.concatenate(([0], np.maximum.accumulate(ends))) if len(ends) else np.zeros(1)
    return np.asarray(highest[trace.run_offset[:-1]], dtype=np.int64)


def recompute_instance_s(result: ReplayResult) -> float:
    """Instance-seconds to prefill every prompt with nothing cached."""
    return math.fsum(result.timeline.recompute_s)


def hit_tokens_per_request(result: ReplayResult) -> IntArray:
    """(requests,) tokens served from any tier."""
    total = np.zeros(len(result.timeline.ttft_s), dtype=np.int64)
    for tokens in result.timeline.hit_tokens.values():
        total += tokens
    return total


def spared_by_all_reuse_s(trace: RequestTrace, rival: ReplayResult) -> float:
    """Instance-seconds that free hits on all reuse would spare over what `rival` serves.

    Formula: Σ max(0, T(n - h | h) - T(n - r | r)), n prompt, h hit of the rival, r reusable tokens,
    T(new | cached) the prefill time. Moves and capacity cost nothing: an upper bound.
    """
    prefill = rival.scenario.prefill
    reusable = reusable_tokens_per_request(trace)
    held = np.minimum(hit_tokens_per_request(rival), trace.prompt_tokens - 1)
    more = reusable > held
    columns = (trace.prompt_tokens[more], held[more], reusable[more])
    return math.fsum(
        max(0.0, prefill.prefill_s(n - h, h) - prefill.prefill_s(n - r, r))
        for n, h, r in zip(*(column.tolist() for column in columns), strict=True)
    )


def all_prefill_upper_s(
    buckets: Sequence[tuple[int, int | None, int, int]], prefill: PrefillTime
) -> float:
    """Instance-seconds of all prefill at most, from a histogram of prompt lengths.

    `buckets` holds (low, high, requests, prompt_tokens), half open; `high` is null for the last.
    Formula: prefill time is convex in the length, so inside a bucket it lies below the chord:
    Σ T(n) ≤ k·T(low) + (Σn - k·low)·(T(high) - T(low)) / (high - low); in an open bucket all but
    one request are taken as `low` long and one holds the rest, which is the convex maximum.
    """
    total = []
    for low, high, requests, tokens in buckets:
        if requests == 0:
            continue
        start = max(low, 1)
        if high is None:
            rest = tokens - (requests - 1) * start
            total.append((requests - 1) * prefill.prefill_s(start, 0) + prefill.prefill_s(rest, 0))
            continue
        floor_s, top_s = prefill.prefill_s(start, 0), prefill.prefill_s(high, 0)
        slope = (top_s - floor_s) / (high - start)
        total.append(requests * floor_s + max(tokens - requests * start, 0) * slope)
    return math.fsum(total)


def knows_flops(deployment: Deployment) -> bool:
    """Whether a prefill can be priced: the FLOPs of the LLM are published."""
    llm = deployment.llm
    return llm.active_nonembed_parameters is not None and all(
        group.pair_flops is not None for group in llm.groups
    )
