"""What a finding reads from a replay beyond its row in the record: stages, tails, tiers, twins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from kvtrace.audit.findings.limits import TAIL_REQUESTS
from kvtrace.audit.thresholds import MIN_REQUESTS
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario, StageSpec, TierSpec
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import FloatArray, IntArray

StageKind = Literal["pull", "load"]
_TAILS: Final = ((0.99, MIN_REQUESTS.value), (0.9, TAIL_REQUESTS.value / 0.1))
"""Quantile, and the requests that it needs."""


@dataclass(frozen=True, slots=True)
class StageTimes:
    """One kind of stage over the loaded hits of a replay."""

    kind: StageKind
    link_ids: tuple[str, ...]
    seconds: float
    """As replayed, all hits together."""
    alone_s: float
    """The same moves, each alone on its links."""

    @property
    def rate_share(self) -> float | None:
        """Rate as replayed over the rate alone, of the mean byte."""
        return ratio(self.alone_s, self.seconds)


def stage_times(result: ReplayResult) -> list[StageTimes]:
    """Pull and load of the tiers, as replayed and alone; nothing where loads overlap or are capped.

    Formula: alone = sum over loaded hits, tiers and stages of latency + bytes / slowest link.
    """
    scenario = result.scenario
    if scenario.overlap != "serial" or scenario.throttles or scenario.request_bytes_per_s:
        return []
    spent: dict[StageKind, FloatArray] = {
        "pull": result.timeline.pull_s,
        "load": result.timeline.load_s,
    }
    found = []
    for kind, seconds in spent.items():
        stages = [(tier, one) for tier in scenario.tiers for one in tier.read if one.kind == kind]
        total = math.fsum(seconds.tolist())
        if stages and total > 0:
            alone = math.fsum(_alone_s(result, tier, stage) for tier, stage in stages)
            ids = tuple(dict.fromkeys(link for _, stage in stages for link in stage.link_ids))
            found.append(StageTimes(kind, ids, total, alone))
    return found


def _alone_s(result: ReplayResult, tier: TierSpec, stage: StageSpec) -> float:
    tokens = result.timeline.hit_tokens.get(tier.tier_id)
    rates = [result.scenario.links[link].bytes_per_s for link in stage.link_ids]
    if tokens is None or not rates:
        return 0.0
    hits = int((tokens > 0).sum())
    moved = int(tokens.sum()) * result.scenario.kv_bytes_per_token
    return hits * stage.latency_s + moved / min(rates)


@dataclass(frozen=True, slots=True)
class Tail:
    """What the slowest first tokens of a replay take longer than the others, part by part."""

    name: str
    """`P99` or `P90`: where it begins."""
    from_s: float
    requests: int
    queue_s: float
    """Mean of the tail less mean of the others."""
    move_s: float
    prefill_s: float
    bytes_in_tail: float
    """Loaded for a request, mean."""
    bytes_in_rest: float

    @property
    def excess_s(self) -> float:
        """All parts together."""
        return math.fsum((self.queue_s, self.move_s, self.prefill_s))

    @property
    def move_share(self) -> float | None:
        """Of the excess, lookup, pull and load."""
        return ratio(self.move_s, self.excess_s) if self.excess_s > 0 else None


def tail_of(result: ReplayResult) -> Tail | None:
    """The tail above P99, or P90 where there are too few requests; null below that."""
    line = result.timeline
    ttft = line.ttft_s
    quantile = next((q for q, least in _TAILS if len(ttft) >= least), None)
    if quantile is None:
        return None
    start = float(np.quantile(ttft, quantile))
    late = ttft > start
    if not late.any():
        return None
    move = line.lookup_s + line.pull_s + line.load_s

    def more(values: FloatArray) -> float:
        return _mean(values[late]) - _mean(values[~late])

    return Tail(
        name=f"P{100 * quantile:.0f}",
        from_s=start,
        requests=int(late.sum()),
        queue_s=more(line.queue_s),
        move_s=more(move),
        prefill_s=more(line.prefill_s),
        bytes_in_tail=_mean(line.moved_bytes[late]),
        bytes_in_rest=_mean(line.moved_bytes[~late]),
    )


def _mean(values: FloatArray) -> float:
    return math.fsum(values.tolist()) / len(values)


@dataclass(frozen=True, slots=True)
class TierHits:
    """Loaded hits whose deepest tier is this one, and how many lost time."""

    tier_id: str
    hits: int
    net_negative: int
    lost_s: float

    @property
    def share(self) -> float:
        """Net-negative hits over hits."""
        return ratio(self.net_negative, self.hits) or 0.0


def tier_hits(result: ReplayResult) -> list[TierHits]:
    """By tier below HBM; a move counts for the deepest tier that it loaded from."""
    line = result.timeline
    regret = move_seconds(result) - line.recompute_hit_s
    deepest = np.full(len(line.ttft_s), -1, dtype=np.int64)
    below = [tier for tier in line.hit_tokens if tier != "hbm"]
    for place, tier in enumerate(below):
        deepest[line.hit_tokens[tier] > 0] = place
    found = []
    for place, tier in enumerate(below):
        inside = deepest == place
        lost = inside & (regret > 0)
        if inside.any():
            found.append(
                TierHits(tier, int(inside.sum()), int(lost.sum()), math.fsum(regret[lost].tolist()))
            )
    return found


def twins(
    results: Mapping[str, ReplayResult], *fields: str
) -> Iterator[tuple[ReplayResult, ReplayResult]]:
    """Pairs of replays whose scenarios differ in these fields and in nothing else but their names.

    Both orders: who asks says which of the two is the one with more.
    """
    ordered = list(results.values())
    for one in ordered:
        for other in ordered:
            if one is not other and _same_but(one.scenario, other.scenario, fields):
                yield one, other


def _same_but(one: Scenario, other: Scenario, fields: Sequence[str]) -> bool:
    mine = {name: getattr(other, name) for name in ("option_id", "title", *fields)}
    return one != other and replace(one, **mine) == other


def with_faster_links(
    results: Mapping[str, ReplayResult], base: ReplayResult
) -> list[ReplayResult]:
    """Replays of the same on links none of which is slower, and some faster; the fastest last."""
    found = [
        other
        for one, other in twins(results, "links")
        if one is base and _is_faster(base.scenario, other.scenario)
    ]
    return sorted(found, key=lambda one: sum(x.bytes_per_s for x in one.scenario.links.values()))


def _is_faster(slow: Scenario, fast: Scenario) -> bool:
    if slow.links.keys() != fast.links.keys():
        return False
    pairs = [(slow.links[name].bytes_per_s, fast.links[name].bytes_per_s) for name in slow.links]
    return all(b >= a for a, b in pairs) and any(b > a for a, b in pairs)


def quantile_of(seconds: FloatArray, some: IntArray | None = None) -> tuple[str, float] | None:
    """`P99` of them, or P90 where they are few, and its seconds; `some`: only of these requests."""
    chosen = seconds if some is None else seconds[some]
    quantile = next((q for q, least in _TAILS if len(chosen) >= least), None)
    if quantile is None:
        return None
    return f"P{100 * quantile:.0f}", float(np.quantile(chosen, quantile))
