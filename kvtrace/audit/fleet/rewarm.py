"""How long caches take to be as warm as they were."""

from __future__ import annotations

from math import ceil

import numpy as np

from kvtrace.audit.thresholds import REWARMED
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.units import NS_PER_S

_SLICE_S = 60.0
_SLICE_REQUESTS = 50
"""A slice of time has so many requests on average, and lasts a minute at least."""


def rewarm_s(trace: RequestTrace, cold: ReplayResult, warm: ReplayResult) -> float | None:
    """Seconds from the first arrival until the cold replay hits as the warm one does.

    Formula: end of the last slice in which hit tokens over prompt tokens are more than the
    tolerance below those of the warm replay; 0 where none is. Null: the last slice still is.
    """
    arrived_s = trace.arrived_at_ns / NS_PER_S
    span_s = float(arrived_s[-1]) if trace.requests else 0.0
    if span_s <= 0:
        return None
    slices = max(1, min(int(span_s // _SLICE_S), trace.requests // _SLICE_REQUESTS))
    width_s = span_s / slices
    place = np.minimum((arrived_s // width_s).astype(np.int64), slices - 1)
    prompts = np.bincount(place, weights=trace.prompt_tokens, minlength=slices)
    missing = _hits(warm, place, slices) - _hits(cold, place, slices)
    is_short = missing > REWARMED.value * prompts
    if not is_short.any():
        return 0.0
    last = int(np.flatnonzero(is_short)[-1])
    return None if last == slices - 1 else (last + 1) * width_s


def _hits(result: ReplayResult, place: IntArray, slices: int) -> FloatArray:
    tokens = hit_tokens(result)
    return np.asarray(np.bincount(place, weights=tokens, minlength=slices), dtype=np.float64)


def hit_tokens(result: ReplayResult) -> IntArray:
    """(requests,) tokens served from any tier."""
    hits = result.timeline.hit_tokens.values()
    return sum(hits, start=np.zeros(len(result.timeline.ttft_s), dtype=np.int64))


def requests_before(trace: RequestTrace, seconds: float) -> int:
    """Requests that arrived in the first so many seconds."""
    return int(np.searchsorted(trace.arrived_at_ns, ceil(seconds * NS_PER_S), side="left"))
