"""Degraded states of a pool that was replayed warm alone: a surrogate for their replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from kvtrace.audit.fleet.record import DegradedState, State
from kvtrace.audit.fleet.states import Judge
from kvtrace.audit.window import arrival_span_s
from kvtrace.replay.result import ReplayResult, Timeline
from kvtrace.schema.arrays import FloatArray, RequestTrace

_LOST: str = "as many requests more are late as with the best pool, which was replayed cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrading:
    """What a degraded pool has left."""

    hot_factor: float
    """Of the rate of what instances share, with one hot node."""
    left: float | None
    """Of its capacity and rate without one node; null: it has no nodes of its own."""


def estimated_states(
    judge: Judge,
    trace: RequestTrace,
    warm: ReplayResult,
    degrading: Degrading,
    *,
    down: ReplayResult | None,
    pattern: Sequence[DegradedState],
) -> tuple[DegradedState, ...]:
    """Warm as replayed, the others from it; `down`: the same fleet without a pool, if replayed.

    Cold states lose what those of `pattern` (the states of a pool that was replayed) lose.
    """
    states = [judge.state("warm", trace, warm)]
    states += [_cold(one, states[0], pattern) for one in pattern if one.is_rewarmed is not None]
    if down is not None:
        states.append(judge.state("pool_down", trace, down))
    else:
        states.append(_judged(judge, "pool_down", trace, without_share(trace, warm, 1.0)))
    hot = slowed(warm, degrading.hot_factor)
    states.append(_judged(judge, "hot_node", trace, hot))
    if degrading.left is not None:
        share = _lost_share(pattern, 1.0 - degrading.left)
        less = without_share(trace, slowed(warm, degrading.left), share)
        states.append(_judged(judge, "node_lost", trace, less))
    return tuple(states)


def _lost_share(pattern: Sequence[DegradedState], most: float) -> float:
    """Of the hits, what the pool that was replayed lost without one node; `most`: not replayed.

    With one hot node it hits as when it is warm, on the same requests.
    """
    ratios = {one.state: one.hit_ratio_tokens for one in pattern}
    whole, less = ratios.get("hot_node"), ratios.get("node_lost")
    if not whole or less is None:
        return most
    return min(most, max(0.0, (whole - less) / whole))


def _judged(judge: Judge, name: State, trace: RequestTrace, result: ReplayResult) -> DegradedState:
    return msgspec.structs.replace(judge.state(name, trace, result), basis="surrogate")


def slowed(result: ReplayResult, factor: float) -> ReplayResult:
    """What instances share passes at `factor` of its rate.

    Formula: TTFT + pull (1 / factor - 1). It is overloaded where a shared link is asked for more
    than it passes then. Assumes: queues stay, and hide nothing of what is added.
    """
    times = 1.0 / factor
    timeline = result.timeline
    added = timeline.pull_s * (times - 1.0)
    links = result.scenario.links
    is_full = any(
        use.utilisation * times > 1.0
        for use in result.link_use
        if links[use.link_id].scope == "shared"
    )
    return replace(
        result,
        timeline=_later(replace(timeline, pull_s=timeline.pull_s + added), added),
        is_overloaded=result.is_overloaded or is_full,
    )


def without_share(trace: RequestTrace, result: ReplayResult, share: float) -> ReplayResult:
    """A share of what shared tiers serve is computed instead, evenly over the requests.

    Formula: TTFT + share · part (recompute - move), part: of the loaded tokens those of shared
    tiers. The offered load grows by the seconds of recomputing. Assumes: queues stay.
    """
    timeline = result.timeline
    shared = {tier.tier_id for tier in result.scenario.tiers if tier.scope == "shared"}
    lost = share * _part(timeline.hit_tokens, shared)
    recompute_s = lost * timeline.recompute_hit_s
    added = recompute_s - lost * (timeline.pull_s + timeline.load_s)
    hits = {
        tier: np.asarray((1.0 - share) * tokens, dtype=np.int64) if tier in shared else tokens
        for tier, tokens in timeline.hit_tokens.items()
    }
    span_s = arrival_span_s(trace)
    load = result.offered_load
    if load is not None and span_s:
        load += float(recompute_s.sum()) / (result.scenario.instances * span_s)
    return replace(
        result,
        timeline=_later(replace(timeline, hit_tokens=hits), added),
        offered_load=load,
        is_overloaded=result.is_overloaded or (load is not None and load > 1.0),
    )


def _part(hits: Mapping[str, np.ndarray], shared: set[str]) -> FloatArray:
    """(requests,) of the tokens that were loaded, the part of shared tiers; 0 without any."""
    loaded = sum((hits[tier] for tier in hits if tier != "hbm"), start=np.zeros(1))
    pooled = sum((hits[tier] for tier in shared if tier in hits), start=np.zeros(1))
    return np.asarray(np.divide(pooled, loaded, out=np.zeros(np.shape(loaded)), where=loaded > 0))


def _later(timeline: Timeline, seconds: FloatArray) -> Timeline:
    return replace(timeline, ttft_s=timeline.ttft_s + seconds, e2e_s=timeline.e2e_s + seconds)


def _cold(
    like: DegradedState, warm: DegradedState, pattern: Sequence[DegradedState]
) -> DegradedState:
    """A cold state that loses what `like` loses of its own warm state."""
    own = next(one for one in pattern if one.state == "warm")
    share = like.requests / warm.requests if warm.requests else 0.0
    late = like.late_more or 0
    within = max(0, min(like.requests, round(warm.within * share) - late))
    ratio = None
    known = (warm.hit_ratio_tokens, own.hit_ratio_tokens, like.hit_ratio_tokens)
    if None not in known:
        mine, before, after = (one or 0.0 for one in known)
        ratio = max(0.0, mine - max(0.0, before - after))
    return msgspec.structs.replace(
        like,
        basis="surrogate",
        within=within,
        keeps_slo=like.keeps_slo and warm.keeps_slo,
        carries_load=like.carries_load and warm.carries_load,
        hit_ratio_tokens=ratio,
        ttft_p99_s=None,
        within_rewarming=None,
        slo=_LOST,
    )
