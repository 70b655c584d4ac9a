"""What each request may take, and how many requests stay within it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from kvtrace.audit.slo.reference import Reference, prompt_buckets
from kvtrace.audit.thresholds import TAIL_TOLERANCE, TPOT_TOLERANCE
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import BoolArray, FloatArray, RequestTrace


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that each request of a trace may take in the engine; null: not limited."""

    ttft_s: FloatArray | None
    tpot_s: float | None
    e2e_s: FloatArray | None


def limits_of(trace: RequestTrace, target: SloTarget, today: Reference | None) -> Limits:
    """What is stated, else today's tail.

    Formula: stated: a + b · prompt tokens, less the time in front of the engine, which a client's
    TTFT and E2E hold and a replay does not. Else: the p99 TTFT of today in the prompt bucket of the
    request where enough requests lie beyond it, or that over all requests (p90 where today has too
    few requests for a p99), plus the tolerance of equal replays. TPOT alike, over all requests.
    """
    ttft_s, tpot_s, e2e_s = stated_ttft_s(trace, target), target.tpot_s, None
    if ttft_s is not None:
        ttft_s = ttft_s - front_s(trace, target)
    if target.e2e_s is not None:
        e2e_s = target.e2e_s - front_s(trace, target)
    if ttft_s is None and today is not None:
        ttft_s = _todays_ttft_s(trace, today)
    if tpot_s is None and today is not None:
        tail_s = today.tpot_s.get("p99", today.tpot_s.get("p90"))
        tpot_s = None if tail_s is None else tail_s * (1 + TPOT_TOLERANCE.value)
    return Limits(ttft_s, tpot_s, e2e_s)


def stated_ttft_s(trace: RequestTrace, target: SloTarget) -> FloatArray | None:
    """(requests,) the TTFT that a team allows a client of each; null where it states none."""
    if target.ttft_s is None:
        return None
    tokens = trace.prompt_tokens.astype(np.float64)
    return np.asarray(target.ttft_s + target.ttft_s_per_token * tokens, dtype=np.float64)


def front_s(trace: RequestTrace, target: SloTarget) -> FloatArray:
    """(requests,) seconds in front of the engine: HTTP, text to tokens, hashes of blocks."""
    tokens = trace.prompt_tokens.astype(np.float64)
    return np.asarray(target.front_s + target.front_s_per_token * tokens, dtype=np.float64)


def _todays_ttft_s(trace: RequestTrace, today: Reference) -> FloatArray | None:
    tail_s = today.ttft_s.get("p99", today.ttft_s.get("p90"))
    if tail_s is None:
        return None
    allowed = np.full(trace.requests, tail_s, dtype=np.float64)
    buckets = prompt_buckets(trace)
    for bucket, tail in today.buckets.items():
        if tail.is_judged(0.99):
            allowed[buckets == bucket] = tail.quantile_s["p99"]
    return allowed * (1 + TAIL_TOLERANCE.value)


def is_within(result: ReplayResult, limits: Limits) -> BoolArray:
    """(requests,) whether a request keeps every limit; an unknown figure keeps its own."""
    timeline = result.timeline
    within = np.ones(len(timeline.ttft_s), dtype=np.bool_)
    if limits.ttft_s is not None:
        within &= timeline.ttft_s <= limits.ttft_s
    if limits.tpot_s is not None:
        within &= ~(timeline.tpot_s > limits.tpot_s)
    if limits.e2e_s is not None:
        within &= ~(timeline.e2e_s > limits.e2e_s)
    return within


def rank_of(share: float, count: int) -> int:
    """Place, from 0, of the request that must be within for `share` of `count` to be."""
    return min(count, max(1, ceil(share * count - 1e-9))) - 1
