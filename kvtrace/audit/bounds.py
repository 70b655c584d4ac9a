"""Best cases in GPU time: what prefill costs in all, and what an unlimited, free cache would spare.

Both are upper bounds on what any pool can free, so that a verdict may rest on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.prefill import PrefillModel
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.replay.scenario import PrefillTime
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.units import NS_PER_S


def window_reusable_tokens(
    trace: RequestTrace, *, whole: RequestTrace | None, is_whole: bool
) -> IntArray | None:
    """(requests,) reusable tokens of `trace` in an unlimited cache with the history of `whole`.

    None where the history before the window is not at hand: what the window shows by itself is a
    lower bound then, and nothing is proved by it.
    """
    if is_whole:
        return reusable_tokens(trace)
    places = None if whole is None else places_in(whole, trace)
    if whole is None or places is None:
        return None
    return np.asarray(reusable_tokens(whole)[places], dtype=np.int64)


def places_in(whole: RequestTrace, part: RequestTrace) -> IntArray | None:
    """(requests of part,) index of each in `whole`; None where one is not there."""
    order = np.argsort(whole.request_key, kind="stable")
    keys = whole.request_key[order]
    found = np.minimum(np.searchsorted(keys, part.request_key), max(len(keys) - 1, 0))
    if not len(keys) or not np.array_equal(keys[found], part.request_key):
        return None
    return np.asarray(order[found], dtype=np.int64)


def recompute_instance_s(result: ReplayResult) -> float:
    """Instance-seconds to prefill every prompt with nothing cached.

    The stages of a pipeline work on different prompts at once.
    """
    return math.fsum(result.timeline.recompute_s) / result.scenario.stages


def hit_tokens_per_request(result: ReplayResult) -> IntArray:
    """(requests,) tokens served from any tier."""
    total = np.zeros(len(result.timeline.ttft_s), dtype=np.int64)
    for tokens in result.timeline.hit_tokens.values():
        total += tokens
    return total


def recompute_s_per_request(trace: RequestTrace, prefill: PrefillTime) -> FloatArray:
    """(requests,) seconds to prefill each prompt alone with nothing cached."""
    lengths, inverse = np.unique(trace.prompt_tokens, return_inverse=True)
    priced = [prefill.prefill_s(n, 0) if n > 0 else 0.0 for n in lengths.tolist()]
    return np.asarray(np.array(priced, dtype=np.float64)[inverse], dtype=np.float64)


def spared_s_per_request(
    trace: RequestTrace, held: IntArray, reusable: IntArray, prefill: PrefillTime
) -> FloatArray:
    """(requests,) seconds that free hits on `reusable` tokens would spare over hits on `held`.

    Formula: max(0, T(n - h | h) - T(n - r | r)), n prompt, h held, r reusable tokens, T(new |
    cached) the prefill time. Moves and capacity cost nothing: an upper bound.
    """
    held = np.clip(held, 0, np.maximum(trace.prompt_tokens - 1, 0))
    spared = np.zeros(trace.requests, dtype=np.float64)
    more = np.flatnonzero(reusable > held)
    n, h, r = trace.prompt_tokens[more], held[more], reusable[more]
    spared[more] = np.maximum(_priced(prefill, n - h, h) - _priced(prefill, n - r, r), 0.0)
    return spared


def _priced(prefill: PrefillTime, new: IntArray, cached: IntArray) -> FloatArray:
    """(n,) prefill seconds; in one go where the model takes arrays."""
    if isinstance(prefill, PrefillModel):
        return prefill.prefill_s(new.astype(np.float64), cached.astype(np.float64))
    pairs = zip(new.tolist(), cached.tolist(), strict=True)
    return np.array([prefill.prefill_s(a, b) for a, b in pairs], dtype=np.float64)


def busiest_instances(arrived_at_ns: IntArray, seconds: FloatArray, window_s: float) -> float:
    """Instances that the work arriving in the busiest window of `window_s` keeps busy.

    Every window that starts at an arrival is tried. `arrived_at_ns` does not decrease; `seconds`
    is the work of each request.
    """
    if not len(seconds):
        return 0.0
    last = np.searchsorted(arrived_at_ns, arrived_at_ns + round(window_s * NS_PER_S), side="left")
    total = np.concatenate((np.zeros(1), np.cumsum(seconds)))
    return float((total[last] - total[:-1]).max()) / window_s


def all_prefill_upper_s(
    buckets: Sequence[tuple[int, int | None, int, int]], prefill: PrefillTime
) -> float:
    """Instance-seconds of all prefill at most, from a histogram of prompt lengths.

    A total: it says nothing of the busiest minutes, so that it proves nothing of a fleet's size.

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
    """Whether a prefill can be priced: FLOPs are published, or the cost provider needs none."""
    return deployment.knows_times
