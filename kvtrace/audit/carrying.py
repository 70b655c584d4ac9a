"""The three numbers that carry the verdict, each with interval and source."""

from __future__ import annotations

import numpy as np

from kvtrace.audit.cases import Case, PoolCase
from kvtrace.audit.ranges import Range, finite
from kvtrace.audit.record import Quantity
from kvtrace.audit.weigh import Weighing
from kvtrace.audit.words import too_short_for_a_month
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.manifest import Grade


def carrying_numbers(case: Case, weighing: Weighing) -> list[Quantity]:
    """Reuse beyond the local tiers, move against recompute, value against cost.

    Without a replayed pool: what is known of the reuse, the best case, and the price of a pool.
    """
    pool = case.best_pool
    if pool is None:
        return _of_bounds(case)
    result = next(r for r in weighing.results if r.scenario.option_id == pool.option_id)
    return [
        _beyond_local(case),
        _move_over_recompute(result, weighing),
        _value_minus_cost(case, pool),
    ]


def _beyond_local(case: Case) -> Quantity:
    extra = [pool.extra_hit_tokens for pool in case.pools]
    best = case.best_pool
    ceiling = None
    if case.reusable_tokens is not None and case.rival_hit_tokens is not None:
        ceiling = max(case.reusable_tokens - case.rival_hit_tokens, *extra)
    return Quantity(
        id="reusable_tokens_beyond_local",
        title=f"tokens that a pool adds beyond {case.rival_title}",
        value=None if best is None else best.extra_hit_tokens,
        low=min(extra),
        high=ceiling,
        unit="tokens",
        source="replays of the pools and of the best option without one; the high is an unlimited "
        "cache",
        kind="modelled",
    )


def _move_over_recompute(result: ReplayResult, weighing: Weighing) -> Quantity:
    """Median over the loaded hits; interval over the paths that were replayed."""
    factor = _median_factor(result)
    pools = (r for r in weighing.results if r.scenario.option_id.startswith("pool_"))
    known = [value for r in pools if (value := _median_factor(r)) is not None]
    return Quantity(
        id="move_over_recompute_at_median_hit",
        title="move over recompute time, median loaded hit",
        value=factor,
        low=min(known, default=None),
        high=max(known, default=None),
        unit="times",
        source=f"replay of {result.scenario.option_id}; low and high: best and worst path",
        kind="modelled",
        interval_reason="" if known else "no hit was loaded",
    )


def _median_factor(result: ReplayResult) -> float | None:
    timeline = result.timeline
    is_priced = (timeline.moved_bytes > 0) & (timeline.recompute_hit_s > 0)
    if not is_priced.any():
        return None
    factors = move_seconds(result)[is_priced] / timeline.recompute_hit_s[is_priced]
    return finite(float(np.median(factors)))


def _value_minus_cost(case: Case, pool: PoolCase) -> Quantity:
    """Null for a window that does not stand for a month."""
    saving, cost = pool.saving, pool.cost
    is_known = case.has_monthly_load
    return Quantity(
        id="value_minus_cost_usd_per_month",
        title="monthly value less cost of the best pool",
        value=saving.value - cost.value if is_known else None,
        low=saving.low - cost.high if is_known else None,
        high=saving.high - cost.low if is_known else None,
        unit="USD/month",
        source=f"{pool.title}: GPU time freed in whole instances times the GPU price"
        f"{f', ${saving.value:,.0f},' if is_known else ''} less the cost of the pool, "
        f"${cost.value:,.0f}; prices in the assumptions",
        kind="modelled",
        interval_reason=too_short_for_a_month(case),
    )


def _of_bounds(case: Case) -> list[Quantity]:
    return [
        _reuse_known(case.grade, case.reusable_tokens),
        _best_case(case),
        _pool_cost(case.lowest_pool_cost),
    ]


def _reuse_known(grade: Grade, reusable_tokens: int | None) -> Quantity:
    return Quantity(
        id="reusable_tokens",
        title="reusable prompt tokens, unlimited cache",
        value=reusable_tokens,
        unit="tokens",
        source="reuse facts"
        if reusable_tokens is not None
        else f"unknown at evidence grade {grade}",
        kind="measured",
        interval_reason="exact for this trace"
        if reusable_tokens is not None
        else "the source does not carry it",
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
        source="prefill time of all prompts times the GPU price",
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
