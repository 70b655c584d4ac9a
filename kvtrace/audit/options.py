"""The options table: replay results on common axes, with money, what binds, and what is dominated.

All figures are modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.bounds import recompute_instance_s
from kvtrace.audit.checks import hit_tokens, is_local, is_pool
from kvtrace.audit.economics import (
    FREE_OPTIONS,
    freed_instances,
    option_usd_per_month,
    usd_quantity,
    value_saving,
)
from kvtrace.audit.ranges import difference, finite
from kvtrace.audit.record import HitCost, LinkLedger, Option, Percentiles, Quantity
from kvtrace.audit.thresholds import LINK_BINDS, PREFILL_BINDS
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import gpu_seconds, hit_costs, move_seconds, percentiles
from kvtrace.schema.arrays import FloatArray

TODAY: Final = "hbm_only"
"""The option that money and latency are compared with: prefix caching in HBM, nothing below it."""
_COST_SOURCE: Final = "nodes, DRAM, ports, power and operations; prices in the assumptions"


def build_options(
    results: Sequence[ReplayResult], fleet: Fleet, *, has_monthly_load: bool = True
) -> list[Option]:
    """One row per replayed option, in the order of the replays.

    Without `has_monthly_load` (a window too short to stand for a month) savings stay null.
    """
    base = next((r for r in results if r.scenario.option_id == TODAY), None)
    options = [_option(result, base, fleet) for result in results]
    if not has_monthly_load:
        for option in options:
            option.usd_saved_per_month = option.saving = None
    best_local = max((hit_tokens(o) for o in options if is_local(o.id)), default=None)
    for option in options:
        option.is_dominated = _is_dominated(option, options)
        if is_pool(option.id) and best_local is not None:
            option.extra_hit_tokens = hit_tokens(option) - best_local
    return options


def _option(result: ReplayResult, base: ReplayResult | None, fleet: Fleet) -> Option:
    scenario, timeline = result.scenario, result.timeline
    gpus = fleet.gpus_per_instance
    hits = {tier: int(tokens.sum()) for tier, tokens in timeline.hit_tokens.items()}
    prompt = int(timeline.computed_tokens.sum()) + sum(hits.values())
    busy = gpu_seconds(result)
    option = Option(
        id=scenario.option_id,
        title=scenario.title,
        instances=scenario.instances,
        hit_ratio_tokens=sum(hits.values()) / prompt if prompt else None,
        hit_tokens_by_tier=hits,
        ttft_s=spread(timeline.ttft_s),
        queue_s=spread(timeline.queue_s),
        move_s=spread(move_seconds(result)),
        prefill_s=spread(timeline.prefill_s),
        tpot_s=spread(timeline.tpot_s),
        prefill_utilisation=result.prefill_utilisation,
        gpu_seconds_prefill=busy * gpus,
        gpu_seconds_saved=difference(recompute_instance_s(result), busy) * gpus,
        hit_cost=_hit_cost(result, gpus),
        links=_links(result),
        usd_per_month=None,
        usd_saved_per_month=None,
        binds=_binds(result),
    )
    _add_money(option, result, base, fleet)
    return option


def spread(seconds: FloatArray) -> Percentiles:
    """Of the known values; p99 from 1 000 of them on."""
    mean, p50, p90, p99 = percentiles(seconds)
    return Percentiles(mean=mean, p50=p50, p90=p90, p99=p99)


def _hit_cost(result: ReplayResult, gpus: int) -> HitCost:
    """Moves against recomputing what they moved, over the requests that loaded something."""
    costs = hit_costs(result)
    return HitCost(
        hits=costs.hits,
        net_negative_hits=costs.net_negative_hits,
        net_negative_bytes=costs.net_negative_bytes,
        ttft_lost_s=costs.lost_s,
        ttft_gained_s=costs.gained_s,
        gpu_seconds_freed=costs.gpu_seconds_freed * gpus,
        moved_bytes=costs.moved_bytes,
    )


def _links(result: ReplayResult) -> list[LinkLedger]:
    return [
        LinkLedger(
            link_id=use.link_id,
            links=use.links,
            bytes_read=use.bytes_read,
            bytes_written=use.bytes_written,
            utilisation=finite(use.utilisation) or 0.0,
            usable_bytes_per_s=result.scenario.links[use.link_id].bytes_per_s,
        )
        for use in result.link_use
    ]


def _binds(result: ReplayResult) -> str:
    """The busiest of what was modelled, if it is busy enough to bind."""
    busiest = max(result.link_use, key=lambda use: (use.utilisation, use.link_id), default=None)
    if (
        busiest is not None
        and busiest.utilisation >= LINK_BINDS.value
        and busiest.utilisation > result.prefill_utilisation
    ):
        return f"link:{busiest.link_id}"
    return "prefill" if result.prefill_utilisation >= PREFILL_BINDS.value else "none"


def _add_money(
    option: Option, result: ReplayResult, base: ReplayResult | None, fleet: Fleet
) -> None:
    cost = option_usd_per_month(option.id, fleet)
    if cost is not None:
        option.usd_per_month = cost.value
        option.cost = usd_quantity(
            f"cost:{option.id}",
            cost,
            title=f"{option.title}: cost",
            source="nothing is bought" if option.id in FREE_OPTIONS else _COST_SOURCE,
        )
    if base is None or min(base.span_s, result.span_s) <= 0:
        return
    freed = freed_instances(
        gpu_seconds(base) - gpu_seconds(result),
        max(base.span_s, result.span_s),
        shortest_span_s=min(base.span_s, result.span_s),
    )
    saving = value_saving(freed, fleet, prefill_utilisation=base.prefill_utilisation)
    option.usd_saved_per_month = saving.usd_per_month.value
    option.saving = usd_quantity(
        f"saving:{option.id}",
        saving.usd_per_month,
        title=f"{option.title}: saved against {base.scenario.title}, in whole instances",
        source="replayed prefill time; GPU price in the assumptions",
    )
    option.instances_saved = Quantity(
        id=f"instances_saved:{option.id}",
        value=freed.value,
        low=freed.low,
        high=freed.high,
        unit="instances",
        title="instances saved, before rounding",
        source="replayed prefill time over the share of time for which a fleet is kept busy",
        kind="modelled",
    )


def _is_dominated(option: Option, options: Sequence[Option]) -> bool | None:
    mine = _axes(option)
    if mine is None:
        return None
    others = [axes for other in options if other is not option if (axes := _axes(other))]
    return any(
        all(theirs <= own for theirs, own in zip(axes, mine, strict=True)) and axes != mine
        for axes in others
    )


def _axes(option: Option) -> tuple[float, ...] | None:
    """Smaller is better; null where a figure is missing."""
    p90, p99, cost = option.ttft_s.p90, option.ttft_s.p99, option.usd_per_month
    if p90 is None or cost is None:
        return None
    tail = p90 if p99 is None else p99
    return (p90, tail, -option.gpu_seconds_saved, cost)
