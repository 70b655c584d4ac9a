"""What a replay says, in few numbers: percentiles, the price of its hits, rows by bucket and time.

Seconds of a GPU here are seconds of an instance; multiply by the GPUs of an instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import Final

import numpy as np

from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import BoolArray, FloatArray, IntArray, RequestTrace
from kvtrace.units import NS_PER_S

P99_NEEDS: Final = 1000
"""Values below which a P99 rests on fewer than ten of them, and is withheld."""


@dataclass(frozen=True, slots=True)
class HitCosts:
    """What the loaded hits of a replay cost against recomputing them."""

    hits: int
    """Requests with at least one token loaded from below HBM."""
    net_negative_hits: int
    """Of these: lookup + pull + load took longer than recomputing what they brought."""
    net_negative_bytes: float
    moved_bytes: float
    lost_s: float
    """Sum of move - recompute over the net-negative hits."""
    gained_s: float
    """Sum of recompute - move over the others."""
    gpu_seconds_freed: float
    """Instance-seconds of prefill that the loads saved, less those that the GPU waited for them."""


@dataclass(frozen=True, slots=True)
class BucketRow:
    """Requests of one power-of-two bucket: what moving cost, what recomputing would have cost.

    Quantiles of move, recompute and moved bytes are over the bucket's hits; None without any.
    """

    bucket: int
    """Lower bound: 0, then powers of two (tokens or bytes)."""
    requests: int
    hits: int
    moved_bytes_mean: float | None
    move_p50_s: float | None
    move_p90_s: float | None
    move_p99_s: float | None
    recompute_p50_s: float | None
    recompute_p90_s: float | None
    recompute_p99_s: float | None
    net_negative_hits: int
    net_negative_share: float | None
    """Of the hits."""
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None


@dataclass(frozen=True, slots=True)
class SliceRow:
    """Requests that arrived in one slice of the replayed span."""

    start_s: float
    requests: int
    hit_ratio_tokens: float | None
    """Tokens served from any tier over prompt tokens."""
    moved_bytes: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None


@dataclass(frozen=True, slots=True)
class RegretRow:
    """One request that lost time by loading."""

    request: int
    """Index in the trace."""
    prompt_tokens: int
    moved_bytes: float
    move_s: float
    recompute_s: float
    """Of what was loaded."""
    regret_s: float
    """move - recompute."""
    ttft_s: float


@dataclass(frozen=True, slots=True)
class _Hits:
    """Per request: its move, and the price of what it brought."""

    is_hit: BoolArray
    move_s: FloatArray
    regret_s: FloatArray
    """Seconds lost by the move; negative where it gained."""


def percentiles(
    values: FloatArray, *, p99_needs: int = P99_NEEDS
) -> tuple[float | None, float | None, float | None, float | None]:
    """(mean, p50, p90, p99) of the known values; None without any, p99 None below `p99_needs`.

    Formula: linear interpolation between order statistics at (n - 1) · q.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return None, None, None, None
    p50, p90, p99 = (float(value) for value in np.quantile(known, (0.5, 0.9, 0.99)))
    mean = fsum(known.tolist()) / len(known)
    return mean, p50, p90, p99 if len(known) >= p99_needs else None


def move_seconds(result: ReplayResult) -> FloatArray:
    """(requests,) lookup + pull + load, and waits for loads that ran beside the prefill."""
    timeline = result.timeline
    move_s = timeline.lookup_s + timeline.pull_s + timeline.load_s + timeline.stall_s
    return np.asarray(move_s, dtype=np.float64)


def hit_costs(result: ReplayResult) -> HitCosts:
    """Both prices of the loaded hits: time to first token, and instance-seconds.

    The recompute price leaves out decode steps that ride along and the queue that recomputing would
    have caused: it is the least that recomputing could have taken.
    """
    timeline = result.timeline
    hits = _hits(result)
    is_loss = hits.is_hit & (hits.regret_s > 0)
    is_gain = hits.is_hit & ~is_loss
    is_sync = result.scenario.load_mode == "sync"
    stall_s = (hits.move_s if is_sync else timeline.stall_s)[hits.is_hit]
    spared_s = fsum(timeline.recompute_hit_s.tolist()) / result.scenario.stages
    return HitCosts(
        hits=int(hits.is_hit.sum()),
        net_negative_hits=int(is_loss.sum()),
        net_negative_bytes=fsum(timeline.moved_bytes[is_loss].tolist()),
        moved_bytes=fsum(timeline.moved_bytes.tolist()),
        lost_s=fsum(hits.regret_s[is_loss].tolist()),
        gained_s=fsum((-hits.regret_s[is_gain]).tolist()),
        gpu_seconds_freed=spared_s - fsum(stall_s.tolist()),
    )


def gpu_seconds(result: ReplayResult) -> float:
    """Instance-seconds that prefill (and sync loads) took."""
    return fsum(result.timeline.gpu_busy_s.tolist())


def by_prompt_bucket(trace: RequestTrace, result: ReplayResult) -> list[BucketRow]:
    """One row per power-of-two bucket of prompt tokens, short ones first."""
    return _by_bucket(trace.prompt_tokens, result)


def by_kv_bucket(trace: RequestTrace, result: ReplayResult) -> list[BucketRow]:
    """One row per power-of-two bucket of the prompt's KV bytes, small ones first."""
    kv_bytes = np.floor(trace.prompt_tokens * result.scenario.kv_bytes_per_token)
    return _by_bucket(kv_bytes.astype(np.int64), result)


def over_time(trace: RequestTrace, result: ReplayResult, slices: int = 48) -> list[SliceRow]:
    """Equal slices from the first arrival to the last, by arrival; empty ones included."""
    if not trace.requests:
        return []
    arrived_s = trace.arrived_at_ns / NS_PER_S
    width_s = float(arrived_s[-1] - arrived_s[0]) / slices
    if width_s <= 0:
        slices = 1
        of_request = np.zeros(trace.requests, dtype=np.int64)
    else:
        of_request = np.minimum((arrived_s - arrived_s[0]) // width_s, slices - 1).astype(np.int64)
    timeline = result.timeline
    hit_tokens = sum(timeline.hit_tokens.values(), start=np.zeros(trace.requests, dtype=np.int64))
    rows: list[SliceRow] = []
    for index in range(slices):
        inside = of_request == index
        prompt = int(trace.prompt_tokens[inside].sum())
        _, p50, p90, _ = percentiles(timeline.ttft_s[inside])
        rows.append(
            SliceRow(
                start_s=float(arrived_s[0]) + index * width_s,
                requests=int(inside.sum()),
                hit_ratio_tokens=int(hit_tokens[inside].sum()) / prompt if prompt else None,
                moved_bytes=fsum(timeline.moved_bytes[inside].tolist()),
                ttft_p50_s=p50,
                ttft_p90_s=p90,
            )
        )
    return rows


def top_regret(trace: RequestTrace, result: ReplayResult, n: int = 20) -> list[RegretRow]:
    """The requests that lost most time by loading, worst first (ties: trace order)."""
    hits = _hits(result)
    timeline = result.timeline
    losers = np.flatnonzero(hits.is_hit & (hits.regret_s > 0))
    order = losers[np.argsort(-hits.regret_s[losers], kind="stable")][:n]
    return [
        RegretRow(
            request=request,
            prompt_tokens=int(trace.prompt_tokens[request]),
            moved_bytes=float(timeline.moved_bytes[request]),
            move_s=float(hits.move_s[request]),
            recompute_s=float(timeline.recompute_hit_s[request]),
            regret_s=float(hits.regret_s[request]),
            ttft_s=float(timeline.ttft_s[request]),
        )
        for request in order.tolist()
    ]


def _hits(result: ReplayResult) -> _Hits:
    timeline = result.timeline
    below = [tokens for tier, tokens in timeline.hit_tokens.items() if tier != "hbm"]
    loaded = sum(below, start=np.zeros(len(timeline.ttft_s), dtype=np.int64))
    move_s = move_seconds(result)
    return _Hits(loaded > 0, move_s, move_s - timeline.recompute_hit_s)


def _by_bucket(sizes: IntArray, result: ReplayResult) -> list[BucketRow]:
    hits = _hits(result)
    timeline = result.timeline
    _, exponents = np.frexp(sizes.astype(np.float64))
    lower = np.where(sizes > 0, np.left_shift(1, np.maximum(exponents - 1, 0).astype(np.int64)), 0)
    rows: list[BucketRow] = []
    for bucket in np.unique(lower).tolist():
        inside = lower == bucket
        hit = inside & hits.is_hit
        count = int(hit.sum())
        losses = int((hit & (hits.regret_s > 0)).sum())
        _, move_p50, move_p90, move_p99 = percentiles(hits.move_s[hit])
        _, again_p50, again_p90, again_p99 = percentiles(timeline.recompute_hit_s[hit])
        _, ttft_p50, ttft_p90, ttft_p99 = percentiles(timeline.ttft_s[inside])
        rows.append(
            BucketRow(
                bucket=bucket,
                requests=int(inside.sum()),
                hits=count,
                moved_bytes_mean=fsum(timeline.moved_bytes[hit].tolist()) / count
                if count
                else None,
                move_p50_s=move_p50,
                move_p90_s=move_p90,
                move_p99_s=move_p99,
                recompute_p50_s=again_p50,
                recompute_p90_s=again_p90,
                recompute_p99_s=again_p99,
                net_negative_hits=losses,
                net_negative_share=losses / count if count else None,
                ttft_p50_s=ttft_p50,
                ttft_p90_s=ttft_p90,
                ttft_p99_s=ttft_p99,
            )
        )
    return rows
