"""Rivals that nobody replayed, bounded; and the size that a pool would need to add hits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.audit.bounds import hit_tokens_per_request, places_in, spared_s_per_request
from kvtrace.audit.cases import PoolCase
from kvtrace.audit.economics import freed_instances, instance_usd_per_month
from kvtrace.audit.fleets import Fleets
from kvtrace.audit.lru import lru_hit_tokens
from kvtrace.audit.record import CurvePoint
from kvtrace.audit.sensitivity import blocks_for_ratio, capacity_blocks, curve_ratio
from kvtrace.audit.thresholds import LITTLE, RIVAL_SHARE
from kvtrace.audit.window import arrival_span_s
from kvtrace.audit.words import percent
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.units import format_bytes

ROUTING: Final = "kv_routing"
_WHAT: Final = "routing that follows the cache, which costs nothing and was not replayed,"


@dataclass(frozen=True, slots=True)
class Routing:
    """What a bound says of routing that nobody replayed."""

    conditions: tuple[str, ...] = ()
    """What must hold for the pool; empty where the bound settles it."""
    excluded: tuple[str, ...] = ()
    """Why it is excluded, with numbers."""


def judge_routing(
    pool: PoolCase,
    result: ReplayResult,
    fleets: Fleets,
    *,
    trace: RequestTrace,
    history: RequestTrace | None,
    fleet: Fleet,
) -> Routing:
    """Whether routing that follows the cache could do what the pool does.

    `history`: all requests that `trace` was taken from; null: not at hand, and nothing is excluded.

    Bound: all HBM and idle DRAM as one LRU cache with the whole history, every move free. It is
    excluded where the pool serves clearly more tokens, the bound spares less than half of the
    prefill that the pool spares, and no whole instance that the verdict counts on.
    """
    span_s = arrival_span_s(trace)
    if ROUTING in fleets.standings or fleet.instances < 2 or not span_s:
        return Routing()
    local = [fleets.standings[ident].result.scenario for ident in fleets.local_ids]
    places = None if history is None else places_in(history, trace)
    if history is None or places is None or not local:
        return Routing((f"{_WHAT} does not serve the same hits",))
    blocks = math.floor(max(capacity_blocks(s, trace.block_size_tokens) for s in local))
    served = lru_hit_tokens(history, blocks)[places]
    mine = hit_tokens_per_request(result)
    bound_s, mine_s = (_spared_s(trace, fleets, result, hits) for hits in (served, mine))
    prompt = max(int(trace.prompt_tokens.sum()), 1)
    share, pool_share = int(served.sum()) / prompt, int(mine.sum()) / prompt
    numbers = (
        f"all HBM and idle DRAM as one cache would serve {percent(share)} of the prompt tokens "
        f"(idealised), {pool.title} serves {percent(pool_share)} (modelled); of the prefill that "
        f"the pool spares it would spare {percent(bound_s / mine_s if mine_s else 1.0)}"
    )
    left = pool.instances_saved.low - math.floor(freed_instances(bound_s, span_s).value)
    is_worth_it = left * instance_usd_per_month(fleet).low > pool.cost.high
    is_little = bound_s < RIVAL_SHARE.value * mine_s
    if pool_share - share >= LITTLE.value and is_little and is_worth_it:
        return Routing(excluded=(f"R{_WHAT[1:]} cannot serve the same hits: {numbers}",))
    try_it = "; by this bound it may serve all of them: try it first" if share >= pool_share else ""
    return Routing((f"{_WHAT} does not serve the same hits: {numbers}{try_it}",))


def _spared_s(trace: RequestTrace, fleets: Fleets, result: ReplayResult, hits: IntArray) -> float:
    """Prefill seconds that these hits spare over those of today, moves free."""
    today = fleets.today
    held = np.zeros_like(hits) if today is None else hit_tokens_per_request(today)
    return math.fsum(spared_s_per_request(trace, held, hits, result.scenario.prefill))


def size_sentence(
    pool: Scenario,
    rival: Scenario,
    curve: Sequence[CurvePoint],
    *,
    block_tokens: int,
    bytes_per_token: float,
) -> str:
    """How large the pool is, and what one cache would take to hit more than the rival does."""
    held = sum(tier.capacity_bytes for tier in pool.tiers)
    local = capacity_blocks(rival, block_tokens)
    here = curve_ratio(curve, local)
    needed = blocks_for_ratio(curve, here + LITTLE.value)
    size = f"a pool of {format_bytes(held)} is too small"
    if needed is None:
        return (
            f"{size}, or kept too busy, to add to what {rival.title} serves; by the capacity curve "
            "of the whole trace no size adds much"
        )
    wanted = needed * block_tokens * bytes_per_token
    return (
        f"{size}: by the capacity curve of the whole trace one cache of {format_bytes(wanted)} "
        f"would serve {100 * LITTLE.value:.0f} % more of the prompt tokens than one as large as "
        f"{rival.title}, {format_bytes(local * block_tokens * bytes_per_token)} in all (idealised)"
    )
