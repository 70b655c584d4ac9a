"""From how many tokens on a load pays, per tier; and what engines call that number.

Two answers. `break_even_load` prices one load on empty links. `replayed_thresholds` looks back on a
replay, with its queues and shared links: the threshold that would have gained most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from typing import Final, Literal

import numpy as np

from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario, StageSpec, TierSpec
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import FloatArray, IntArray

LENGTHS: Final = (2048, 8192, 32_768, 131_072)
"""Prompt tokens for which a break-even is given unless told."""


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """A static threshold of an engine, and what it counts."""

    engine: str
    setting: str
    """As it is written where it is set."""
    place: str
    """Where that is."""
    counts: Literal["loaded", "prompt"]
    """Tokens that would be loaded beyond those that the instance has, or tokens of the prompt."""
    default: int | None
    """None: it has to be stated."""
    source: str


ENGINE_SETTINGS: Final = (
    EngineSetting(
        "LMCache",
        "min_retrieve_tokens",
        "configuration file, or LMCACHE_MIN_RETRIEVE_TOKENS",
        "loaded",
        0,
        "LMCache pull request 2484, 2026-01",
    ),
    EngineSetting(
        "vLLM NixlConnector",
        "kv_recompute_threshold",
        "kv_connector_extra_config; the remote pull threshold, for pulls from decode instances",
        "loaded",
        64,
        "vLLM pull request 32553, 2026-04; its table of connector options",
    ),
    EngineSetting(
        "SGLang HiCache",
        "prefetch_threshold",
        "--hicache-storage-backend-extra-config",
        "loaded",
        256,
        "SGLang managers/cache_controller.py, HiCacheController",
    ),
    EngineSetting(
        "UCM",
        "persist_token_threshold",
        "ucm_config.yaml; shorter prompts are not written either",
        "prompt",
        0,
        "UCM pull request 925, 2026-04",
    ),
    EngineSetting(
        "llm-d",
        "minCachedTokenDelta",
        "parameters of p2p-source-producer",
        "loaded",
        None,
        "llm-d guide p2p-kv-cache-sharing, which says to measure it",
    ),
)
"""Read on 2026-11-30."""


@dataclass(frozen=True, slots=True)
class TierThreshold:
    """What a static threshold would have done for the loads of one tier in a replay."""

    tier_id: str
    loads: int
    """Requests that loaded from this tier and no other."""
    tokens: int | None
    """The threshold; None: no load at all would have been best, or there was none."""
    kept_loads: int
    gained_s: float
    """Time to first token that the kept loads saved, less what they lost."""
    gained_without_s: float
    """The same of all loads, without a threshold."""


def break_even_load(scenario: Scenario, tier: TierSpec, *, prompt_tokens: int) -> int | None:
    """Fewest leading tokens whose load from the tier is sooner than computing them.

    Nothing is in HBM, links are empty. None: not even the whole prompt (but its last token), or a
    link that moves nothing.
    Formula: least n with stall(n) < prefill(P, 0) - prefill(P - n, n), by bisection; stall is the
    lookup and the move, or what overlapping leaves of it.
    Assumes: what a load gains changes its sign once.
    """

    def gain_s(tokens: int) -> float:
        rest_s = scenario.prefill.prefill_s(prompt_tokens - tokens, tokens)
        whole_s = scenario.prefill.prefill_s(prompt_tokens, 0)
        return whole_s - tier.lookup_s - _overlapped_s(scenario, tier, tokens, rest_s)

    below, above = 0, prompt_tokens - 1
    if any(_bytes_per_s(scenario, stage) <= 0.0 for stage in tier.read):
        return None
    if above < 1 or gain_s(above) <= 0.0:
        return None
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if gain_s(middle) > 0.0 else (middle, above)
    return above


def _overlapped_s(scenario: Scenario, tier: TierSpec, tokens: int, rest_s: float) -> float:
    """Seconds of a load of so many tokens and the prefill after (or beside) it."""
    size = tokens * scenario.kv_bytes_per_token
    stages = [(stage.latency_s, _bytes_per_s(scenario, stage)) for stage in tier.read]
    fixed_s = fsum(latency_s for latency_s, _ in stages)
    if scenario.overlap == "pipelined":
        chunk = min(size, scenario.load_chunk_tokens * scenario.kv_bytes_per_token)
        slowest = min((rate for _, rate in stages), default=np.inf)
        fill_s = fsum(chunk / rate for _, rate in stages) - chunk / slowest
        return fixed_s + size / slowest + fill_s + rest_s
    move_s = fixed_s + fsum(size / rate for _, rate in stages)
    layers = scenario.layers if scenario.overlap == "layerwise" else 1
    return (move_s + rest_s + (layers - 1) * max(move_s, rest_s)) / layers


def _bytes_per_s(scenario: Scenario, stage: StageSpec) -> float:
    return min((scenario.links[link].bytes_per_s for link in stage.link_ids), default=np.inf)


def replayed_thresholds(result: ReplayResult) -> tuple[TierThreshold, ...]:
    """Per tier of the chain: the static threshold that would have gained most in this replay.

    Assumes: leaving one load out would not have changed another.
    """
    timeline = result.timeline
    gained_s = timeline.recompute_hit_s - move_seconds(result)
    below = {tier: hits for tier, hits in timeline.hit_tokens.items() if tier != "hbm"}
    loaded = sum(below.values(), start=np.zeros(len(gained_s), dtype=np.int64))
    return tuple(
        _threshold(tier, hits[is_own], gained_s[is_own])
        for tier, hits in below.items()
        for is_own in [(hits > 0) & (hits == loaded)]
    )


def _threshold(tier: str, tokens: IntArray, gained_s: FloatArray) -> TierThreshold:
    best = best_threshold(tokens, gained_s)
    kept = gained_s[tokens >= best] if best is not None else gained_s[:0]
    return TierThreshold(
        tier_id=tier,
        loads=len(tokens),
        tokens=best,
        kept_loads=len(kept),
        gained_s=fsum(kept.tolist()),
        gained_without_s=fsum(gained_s.tolist()),
    )


def best_threshold(tokens: IntArray, gained_s: FloatArray) -> int | None:
    """The number of tokens from which on loads together gained most; the least of equal ones.

    None: no loads gain most.
    """
    best, most_s, total_s = None, 0.0, 0.0
    order = np.argsort(-tokens, kind="stable")
    sizes, gains = tokens[order].tolist(), gained_s[order].tolist()
    for place, (size, gain) in enumerate(zip(sizes, gains, strict=True)):
        total_s += gain
        is_last = place + 1 == len(sizes) or sizes[place + 1] != size
        if is_last and total_s > 0.0 and total_s >= most_s:
            best, most_s = int(size), total_s
    return best


def setting_values(tokens: int | None) -> Iterator[tuple[EngineSetting, int | None]]:
    """Each engine's setting with the value that a break-even of so many tokens means for it.

    A count of the whole prompt cannot tell how much of it would be loaded: the value is the least
    that no such load falls below. None: the tier should not be loaded from at all.
    """
    for setting in ENGINE_SETTINGS:
        yield setting, tokens


def advice(scenario: Scenario, lengths: tuple[int, ...] = LENGTHS) -> dict[str, int | None]:
    """Per tier the static threshold that loses on no prompt of these lengths, on empty links.

    None: a load of some length never pays there.
    """
    found: dict[str, int | None] = {}
    for tier in scenario.tiers:
        each = [break_even_load(scenario, tier, prompt_tokens=length) for length in lengths]
        known = [tokens for tokens in each if tokens is not None]
        found[tier.tier_id] = max(known) if len(known) == len(each) else None
    return found
