"""The three numbers that carry the verdict, each with interval and source."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import Quantity
from kvtrace.audit.uncertainty.ranges import Range, finite
from kvtrace.audit.uncertainty.sensitivity import extra_ratio_range, move_over_recompute
from kvtrace.audit.verdict.cases import Case, PoolCase
from kvtrace.audit.verdict.weighing import Weighing
from kvtrace.audit.verdict.words import repeated_window, too_short_for_a_month
from kvtrace.replay.result import ReplayResult
from kvtrace.units import format_bytes


def carrying_numbers(case: Case, weighing: Weighing) -> list[Quantity]:
    """Reuse beyond the local tiers, move against recompute, value against cost.

    All of the pooled option that the verdict names. Without a replayed pool: what is known of the
    reuse, the best case, and the price of a pool.
    """
    pool = case.best_pool
    if pool is None:
        return _of_bounds(case)
    result = weighing.fleets.standings[pool.option_id].result
    return [
        _beyond_local(case, pool, result, weighing),
        _move_over_recompute(pool, result, weighing),
        _value_minus_cost(case, pool),
    ]


_HOLDS: Final = "; below zero: the pool holds"


def _beyond_local(case: Case, pool: PoolCase, result: ReplayResult, weighing: Weighing) -> Quantity:
    """Interval: by the sizes of pool and idle DRAM (capacity curve), never above all reuse."""
    extra, rival = pool.extra_hit_tokens, weighing.rival_of(pool)
    below, above = 0.0, 0.0
    if rival is not None and weighing.trace is not None:
        below, above = extra_ratio_range(
            weighing.reuse.hit_curve,
            result.scenario,
            rival.scenario,
            weighing.fleet,
            weighing.trace.block_size_tokens,
        )
    prompt = case.prompt_tokens or 0
    low, high = extra - round(below * prompt), extra + round(above * prompt)
    ceiling = ""
    theirs = case.rival_hits(pool)
    if case.reusable_tokens is not None and theirs is not None:
        left = case.reusable_tokens - theirs
        ceiling = f"; an unlimited cache: {left:,}" if case.is_history_known else ""
        high = max(extra, min(high, left)) if case.is_history_known else high
    why = "" if extra >= 0 else _why_below(result, rival)
    return Quantity(
        id="reusable_tokens_beyond_local",
        title=f"tokens that a pool adds beyond {case.rival_of(pool)}"
        f"{' (below zero: that one holds more)' if _HOLDS in why else ''}",
        value=extra,
        low=low,
        high=high,
        unit="tokens",
        source=f"replays of {_variant(result)} and of {case.rival_of(pool)}; low and "
        f"high: sizes of pool and idle DRAM, by the capacity curve (idealised){ceiling}{why}",
        kind="modelled",
        interval_reason="" if low != high else "sizes are stated; one replay each",
    )


def _why_below(result: ReplayResult, rival: ReplayResult | None) -> str:
    """Why a pool serves fewer tokens than an option without one."""
    if not (result.timeline.moved_bytes > 0).any():
        return "; below zero: it loads nothing, for recomputing is priced lower"
    mine = sum(tier.capacity_bytes for tier in result.scenario.tiers)
    if rival is None or not rival.scenario.tiers:
        return "; below zero: within the noise of two replays"
    theirs = rival.scenario.instances * sum(t.capacity_bytes for t in rival.scenario.tiers)
    if theirs <= mine:
        return "; below zero: what it loads and keeps hits less often"
    return f"{_HOLDS} {format_bytes(mine)}, {rival.scenario.title} {format_bytes(theirs)} in all"


def _variant(result: ReplayResult) -> str:
    """`pool_dram_tcp with an arbiter`."""
    scenario = result.scenario
    chosen = " with an arbiter" if scenario.load_decision == "arbiter" else ""
    return f"{scenario.option_id}{chosen}"


def _move_over_recompute(pool: PoolCase, result: ReplayResult, weighing: Weighing) -> Quantity:
    """Median over the loaded hits of this option; the interval is that of its own constants."""
    factor = move_over_recompute(result, weighing.deployment)
    return Quantity(
        id="move_over_recompute_at_median_hit",
        title=f"move over recompute time, median loaded hit of {pool.title}",
        value=None if factor is None else finite(factor.value),
        low=None if factor is None else finite(factor.low),
        high=None if factor is None else finite(factor.high),
        unit="times",
        source=f"replay of {_variant(result)}; low and high: the constants of this path and of "
        "prefill at the ends of their ranges, first order (queues stay)",
        kind="modelled",
        interval_reason="" if factor is not None else "no hit was loaded",
    )


def _value_minus_cost(case: Case, pool: PoolCase) -> Quantity:
    """Null for a window that does not stand for a month."""
    saving, cost = pool.saving, pool.cost
    is_known = case.has_monthly_load and pool.is_feasible
    return Quantity(
        id="value_minus_cost_usd_per_month",
        title="monthly value less cost of the best pool",
        value=saving.value - cost.value if is_known else None,
        low=saving.low - cost.high if is_known else None,
        high=saving.high - cost.low if is_known else None,
        unit="USD/month",
        source=f"{pool.title}: {_instances(pool)} times the GPU price"
        f"{f', ${saving.value:,.0f},' if is_known else ''} less the cost of the pool"
        f"{'' if pool.net_of is None else f' beyond that of {pool.net_of}'}, "
        f"${cost.value:,.0f}; prices in the assumptions{repeated_window(case)}",
        kind="modelled",
        interval_reason=too_short_for_a_month(case)
        if pool.is_feasible
        else "no pool carries this load on the stated fleet",
    )


def _instances(pool: PoolCase) -> str:
    """`1 whole instance given back, by replay (the low, 1, by replays at the ends …)`."""
    saved = pool.instances_saved
    how = "by replay" if pool.is_saving_replayed else "by the estimate, no replay on fewer"
    noun = "instance" if saved.value == 1 else "instances"
    low = (
        f"the low, {saved.low:,.0f}, by replays at the ends of the constants; "
        if pool.is_saving_replayed and saved.value
        else ""
    )
    rival = pool.net_of or "the best option without a pool"
    return (
        f"{saved.value:,.0f} whole {noun} given back beyond {rival}, {how} "
        f"({low}freed prefill alone: {pool.estimate.value:.2f}; the high is {saved.high:.2f})"
    )


def _of_bounds(case: Case) -> list[Quantity]:
    return [
        _reuse_known(case),
        _best_case(case),
        _pool_cost(case.lowest_pool_cost),
    ]


def _reuse_known(case: Case) -> Quantity:
    tokens, gap = case.reusable_tokens, case.log_gap
    is_least = tokens is not None and gap is not None and gap.hides_reuse
    title = "reusable prompt tokens, unlimited cache"
    return Quantity(
        id="reusable_tokens",
        title=f"at least: {title}" if is_least else title,
        value=tokens,
        unit="tokens",
        source="reuse facts" if tokens is not None else f"unknown at evidence grade {case.grade}",
        kind="measured",
        interval_reason="the source does not carry it"
        if tokens is None
        else "a lower bound: requests are missing from the log"
        if is_least
        else "exact for this trace",
    )


def _best_case(case: Case) -> Quantity:
    """Null without a load, and for a window that does not stand for a month."""
    reason = too_short_for_a_month(case)
    if case.all_prefill is None:
        reason = "unknown: no load or no time span"
    saving = None if reason or case.all_prefill is None else case.all_prefill.saving
    return Quantity(
        id="best_case_usd_per_month",
        title="most that any cache could save a month",
        value=None if saving is None else saving.value,
        low=None if saving is None else 0.0,
        high=None if saving is None else saving.high,
        unit="USD/month",
        source=(
            "prefill time of all prompts, in the busiest five minutes, times the GPU price"
            if case.all_prefill is None or case.all_prefill.is_peak
            else "prefill time of all prompts, mean load, times the GPU price"
        )
        + repeated_window(case),
        kind="modelled",
        interval_reason=reason,
    )


def _pool_cost(cost: Range | None) -> Quantity:
    return Quantity(
        id="lowest_pool_cost_usd_per_month",
        title="least that a pool costs a month",
        value=None if cost is None else cost.value,
        low=None if cost is None else cost.low,
        high=None if cost is None else cost.high,
        unit="USD/month",
        source="nodes, DRAM, ports, power and operations; prices in the assumptions",
        kind="modelled",
        interval_reason="the cost is not modelled" if cost is None else "",
    )
