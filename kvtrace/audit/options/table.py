"""The options table: replay results on common axes, with money, what binds, and what is dominated.

All figures are modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvtrace.audit.bounds import recompute_instance_s
from kvtrace.audit.fleet.record import FleetSizes
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.economics import (
    freed_instances,
    usd_quantity,
    value_saving,
)
from kvtrace.audit.money.gpu_worth import GpuWorth, gpu_worth
from kvtrace.audit.record import HitCost, LinkLedger, Option, Percentiles, Quantity
from kvtrace.audit.slo.fleets import TODAY, Fleets
from kvtrace.audit.thresholds import LINK_BINDS, PREFILL_BINDS
from kvtrace.audit.uncertainty.ranges import Range, difference, finite
from kvtrace.audit.uncertainty.sensitivity import net_negative_range
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.options.recipes import family_of
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import gpu_seconds, hit_costs, move_seconds, percentiles
from kvtrace.schema.arrays import FloatArray

_COST_SOURCE: Final = "the bill of what it needs, line by line in the economics"
_NOTHING: Final = "recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """What options are priced with, beside the fleet."""

    fleet: Fleet
    bills: Bills
    worth: GpuWorth
    fleets: Fleets = field(default_factory=lambda: Fleets({}, None))
    deployment: Deployment | None = None
    """Null: no ranges of the path's constants."""
    span_s: float | None = None
    """Of the arrivals; null: no saving is given."""
    factor: Range = field(default_factory=lambda: Range.exact(1.0))
    """Prefill seconds over the range of the GEMM efficiency."""
    options: Mapping[str, ReplayOption] = field(default_factory=dict)
    """What is known of each option beside its replay, by its id."""
    has_monthly_load: bool = True
    """False: a window too short to stand for a month; savings stay null."""


def build_options(
    results: Sequence[ReplayResult],
    fleet: Fleet,
    *,
    money: Money | None = None,
    arbiter: Sequence[ReplayResult] = (),
) -> list[Option]:
    """One row per replayed option, in the order of the replays.

    Without `money` nothing is said of savings and of the SLO.
    """
    if money is None:
        money = Money(fleet=fleet, bills=Bills(fleet), worth=gpu_worth(fleet))
    by_id = {result.scenario.option_id: result for result in results}
    sparing = {result.scenario.option_id: result for result in arbiter}
    options = []
    for result in results:
        option = _option(result, by_id.get(_NOTHING), money)
        _add_kind(option, money.options.get(option.id))
        other = sparing.get(option.id)
        if other is not None:
            option.hit_cost.with_arbiter = _hit_cost(other, money)
        _add_slo(option, money.fleets)
        _add_money(option, result, by_id.get(TODAY), money)
        options.append(option)
    for option in options:
        option.is_dominated = _is_dominated(option, options)
    return options


def add_instances(options: Iterable[Option], fleets: FleetSizes | None) -> None:
    """The count of the fleet section at the trace's load, and how it is known."""
    needs = () if fleets is None else fleets.needs
    counted = {need.option: need for need in needs if need.load == 1.0}
    for option in options:
        need = counted.get(option.id)
        if need is not None:
            option.instances_at_slo, option.instances_basis = need.instances, need.basis


def _option(result: ReplayResult, nothing: ReplayResult | None, money: Money) -> Option:
    scenario, timeline = result.scenario, result.timeline
    gpus = money.fleet.gpus_per_instance
    hits = {tier: int(tokens.sum()) for tier, tokens in timeline.hit_tokens.items()}
    prompt = int(timeline.computed_tokens.sum()) + sum(hits.values())
    busy = gpu_seconds(result)
    alone = recompute_instance_s(result) if nothing is None else gpu_seconds(nothing)
    return Option(
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
        gpu_seconds_saved=difference(alone, busy) * gpus,
        hit_cost=_hit_cost(result, money),
        links=_links(result),
        usd_per_month=None,
        usd_saved_per_month=None,
        binds=_binds(result),
        is_feasible=not result.is_overloaded,
        offered_load=finite(result.offered_load),
        family=family_of(scenario.option_id),
    )


def _add_kind(option: Option, known: ReplayOption | None) -> None:
    """Where it lives, over which wire, and whether everybody would call its answers the same."""
    if known is None:
        return
    option.place, option.wire = known.place, known.wire
    option.port_bits_per_s = known.port_bits_per_s
    option.is_quantised, option.is_quick = known.is_quantised, known.is_quick


def _add_slo(option: Option, fleets: Fleets) -> None:
    """Where it stands against today."""
    standing = fleets.standings.get(option.id)
    if standing is None:
        return
    option.instances_at_slo = standing.most
    if standing.as_replayed is not None:
        option.slo = str(standing.as_replayed)
        option.keeps_slo = standing.as_replayed.is_kept


def spread(seconds: FloatArray) -> Percentiles:
    """Of the known values; p99 from 1 000 of them on."""
    mean, p50, p90, p99 = percentiles(seconds)
    return Percentiles(mean=mean, p50=p50, p90=p90, p99=p99)


def _hit_cost(result: ReplayResult, money: Money) -> HitCost:
    """Moves against recomputing what they moved, over the requests that loaded something."""
    costs = hit_costs(result)
    interval = None
    if costs.hits and money.deployment is not None:
        interval = net_negative_range(result, money.deployment)
    return HitCost(
        hits=costs.hits,
        net_negative_hits=costs.net_negative_hits,
        net_negative_bytes=costs.net_negative_bytes,
        ttft_lost_s=costs.lost_s,
        ttft_gained_s=costs.gained_s,
        gpu_seconds_freed=costs.gpu_seconds_freed * money.fleet.gpus_per_instance,
        moved_bytes=costs.moved_bytes,
        net_negative=None if interval is None else interval.quantity(result.scenario.option_id),
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
    """The busiest of what was modelled, if it is busy enough to bind.

    An option that does not carry the load is bound by what takes most of its instances' time, even
    if they are idle outside its bursts.
    """
    busiest = max(result.link_use, key=lambda use: (use.utilisation, use.link_id), default=None)
    if (
        busiest is not None
        and busiest.utilisation >= LINK_BINDS.value
        and busiest.utilisation > result.prefill_utilisation
    ):
        return f"link:{busiest.link_id}"
    if result.prefill_utilisation >= PREFILL_BINDS.value:
        return "prefill"
    if not result.is_overloaded:
        return "none"
    return "prefill" if 2 * result.prefill_utilisation >= (result.offered_load or 0.0) else "decode"


def _add_money(
    option: Option, result: ReplayResult, base: ReplayResult | None, money: Money
) -> None:
    cost = money.bills.usd_per_month(option.id)
    if cost is not None:
        option.usd_per_month = cost.value
        option.cost = usd_quantity(
            f"cost:{option.id}",
            cost,
            title=f"{option.title}: cost",
            source=_COST_SOURCE if cost.high else "nothing is bought",
        )
    if base is None or not money.span_s or not option.is_feasible:
        return
    busy_s = difference(gpu_seconds(base), gpu_seconds(result))
    freed = freed_instances(busy_s, money.span_s) * money.factor
    saved = money.fleets.saved(option.id, against=(base.scenario.option_id,))
    saving = value_saving(
        saved,
        freed,
        money.fleet,
        money.worth,
        is_replayed=True,  # what no replay shows stays in the high: sums, ranks and prices count it
        is_rival_able=not base.is_overloaded,
    )
    against = f"against {base.scenario.title}"
    option.instances_saved = _instances(
        f"instances_saved:{option.id}",
        freed,
        title=f"instances that its freed prefill is worth {against}, before rounding",
        source="estimate: replayed prefill time over the share of time for which a fleet is kept "
        "busy, over the range of GEMM efficiency",
    )
    option.whole_instances_saved = _instances(
        f"whole_instances_saved:{option.id}",
        saving.instances,
        title=f"whole instances given back at {_whose_slo(money)} SLO {against}",
        source="; ".join(one for one in (saved.how, saved.at_ends) if one)
        or _why_unreplayed(option, money),
    )
    if money.has_monthly_load:
        option.usd_saved_per_month = saving.usd_per_month.value
        option.saving = usd_quantity(
            f"saving:{option.id}",
            saving.usd_per_month,
            title=f"{option.title}: saved {against}, in whole instances",
            source="whole instances: value by replays at the middle of the constants, low by the "
            "same at their ends, high by freed prefill time; " + money.worth.note,
        )


def _whose_slo(money: Money) -> str:
    return "the stated" if money.fleet.slo.is_stated else "today's"


def _keeps_slo(option: Option, money: Money) -> bool:
    standing = money.fleets.standings.get(option.id)
    return standing is None or standing.is_kept or standing.is_kept_with_fewer


def _why_unreplayed(option: Option, money: Money) -> str:
    if _keeps_slo(option, money):
        return "no replay on fewer instances: none counted; the high is freed prefill time"
    return "it misses the SLO on the fleet as it stands; the high is freed prefill time"


def _instances(ident: str, amount: Range, *, title: str, source: str) -> Quantity:
    return amount.modelled(ident, "instances", title, source)


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
