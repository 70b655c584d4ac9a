"""Each pooled option weighed against what needs no pool: the rows of the verdict's case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvtrace.audit.bounds import hit_tokens_per_request
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.economics import Saving, freed_instances, value_saving
from kvtrace.audit.money.gpu_worth import GpuWorth
from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.slo.figures import SloCheck
from kvtrace.audit.slo.fleets import Fleets, Saved
from kvtrace.audit.slo.standing import Standing
from kvtrace.audit.uncertainty.ranges import Range, ratio
from kvtrace.audit.verdict.cases import PoolCase, Rival
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.summary import gpu_seconds, hit_costs, move_seconds, percentiles
from kvtrace.units import format_seconds


@dataclass(frozen=True, slots=True)
class PoolPrices:
    """What pools and their rivals are weighed with."""

    bills: Bills
    worth: GpuWorth
    span_s: float
    """Of the arrivals."""
    factor: Range
    """Prefill seconds over the range of the GEMM efficiency."""


def pool_cases(fleets: Fleets, prices: PoolPrices) -> Iterator[PoolCase]:
    """One row per pooled option whose cost is known, against the rival that leaves it least.

    All options without a pool that cost nothing are one rival; each that costs something is one
    more, net of what it costs. Against a pool with KV of fewer bits those of fewer bits are rivals,
    too: without one of them it is not weighed, for what the bits give is not the pool's.
    """
    for ident, standing in fleets.standings.items():
        cost, rival = prices.bills.usd_per_month(ident), fleets.best_rival_of(ident)
        if not is_pool(ident) or cost is None or rival is None:
            continue
        if ident in fleets.narrow and not fleets.narrow_local_ids:
            continue
        case = _pool_case(fleets, standing, rival, prices, cost)
        others = (
            _against_priced(case, fleets, one, prices) for one in fleets.priced_rivals_of(ident)
        )
        yield min((case, *(one for one in others if one is not None)), key=_margin)


def _margin(case: PoolCase) -> float:
    return case.saving.value - case.cost.value


def _against_priced(
    case: PoolCase, fleets: Fleets, rival_id: str, prices: PoolPrices
) -> PoolCase | None:
    """The same pool against one rival that costs something; null where that is not known."""
    theirs = prices.bills.usd_per_month(rival_id)
    if theirs is None:
        return None
    standing, rival = fleets.standings[case.option_id], fleets.standings[rival_id]
    saved, freed, saving = _saving(fleets, standing, rival, prices, against=(rival_id,))
    held, cost = _hits(rival), case.cost
    return replace(
        case,
        extra_hit_tokens=_hits(standing) - held,
        saving=saving.usd_per_month,
        unrounded_saving_usd=saving.unrounded_usd_per_month,
        cost=Range(cost.low - theirs.high, cost.value - theirs.value, cost.high - theirs.low),
        instances_saved=saving.instances,
        freed=freed,
        is_saving_replayed=saved.is_replayed,
        how_saved=saved.how,
        at_ends=saved.at_ends,
        avoided=saved.avoided,
        rival=_rival(rival, theirs),
    )


def _rival(standing: Standing, cost: Range | None = None) -> Rival:
    scenario = standing.result.scenario
    return Rival(
        option_id=scenario.option_id, title=scenario.title, hit_tokens=_hits(standing), cost=cost
    )


def _hits(standing: Standing) -> int:
    return int(hit_tokens_per_request(standing.result).sum())


def _saving(
    fleets: Fleets,
    standing: Standing,
    rival: Standing,
    prices: PoolPrices,
    *,
    against: tuple[str, ...] | None = None,
) -> tuple[Saved, Range, Saving]:
    """Instances saved by replay, instances worth of freed time, and what both are worth."""
    busy_s = gpu_seconds(rival.result) - gpu_seconds(standing.result)
    freed = freed_instances(busy_s, prices.span_s) * prices.factor
    saved = fleets.saved(standing.result.scenario.option_id, against=against)
    saving = value_saving(
        saved,
        freed,
        prices.bills.fleet,
        prices.worth,
        is_replayed=saved.is_replayed,
        is_rival_able=rival.is_feasible,
    )
    return saved, freed, saving


def _pool_case(
    fleets: Fleets, standing: Standing, rival: Standing, prices: PoolPrices, cost: Range
) -> PoolCase:
    result = standing.result
    saved, freed, saving = _saving(fleets, standing, rival, prices)
    costs = hit_costs(result)
    path, break_even = _bandwidths(result)
    _, _, p90, p99 = percentiles(result.timeline.ttft_s)
    check = standing.check
    matched_by, is_match_shown = fleets.matched_by(result.scenario.option_id)
    return PoolCase(
        option_id=result.scenario.option_id,
        title=pool_title(result.scenario, fleets),
        extra_hit_tokens=_hits(standing) - _hits(rival),
        saving=saving.usd_per_month,
        unrounded_saving_usd=saving.unrounded_usd_per_month,
        cost=cost,
        instances_saved=saving.instances,
        freed=freed,
        is_no_slower=standing.is_kept or standing.is_kept_with_fewer,
        slowdown=slo_text(standing),
        tail_s=p99 or p90 or 0.0,
        net_negative_share=ratio(costs.net_negative_hits, costs.hits),
        path_bytes_per_s=path,
        break_even_bytes_per_s=break_even,
        is_saving_replayed=saved.is_replayed,
        how_saved=saved.how,
        at_ends=saved.at_ends,
        avoided=saved.avoided,
        matched_by=matched_by,
        is_match_shown=is_match_shown,
        worst_excess=_excess(check),
        unjudged=_unjudged(standing),
        is_feasible=standing.is_feasible,
        is_quantised=result.scenario.option_id in fleets.narrow,
        rival=_rival(rival),
    )


def pool_title(scenario: Scenario, fleets: Fleets) -> str:
    """The title, with the load decision where it is not that of the other options."""
    usual = {s.result.scenario.load_decision for s in fleets.standings.values()}
    is_special = scenario.load_decision == "arbiter" and usual != {"arbiter"}
    if "arbiter" in scenario.title:
        return scenario.title
    return f"{scenario.title}, with an arbiter" if is_special else scenario.title


def slo_text(standing: Standing) -> str:
    """The figures behind `is_no_slower`."""
    title = standing.result.scenario.title
    if standing.check is not None:
        return str(standing.check)
    _, _, p90, _ = percentiles(standing.result.timeline.ttft_s)
    tail = "TTFT unknown" if p90 is None else f"TTFT p90 {format_seconds(p90)}"
    return f"{title}: {tail}"


def _excess(check: SloCheck | None) -> str:
    worst = None if check is None else check.worst
    if worst is None:
        return ""
    return f"{worst.where} is longer by {format_seconds(worst.excess_s)}"


def _unjudged(standing: Standing) -> str:
    """Of the replay that the saving rests on."""
    check = standing.fewer if standing.is_kept_with_fewer else standing.check
    late = None if check is None else check.unjudged
    if check is None or late is None:
        return ""
    fewer = " on one instance less" if check is standing.fewer else ""
    return f"{check.title}{fewer}: {late} (modelled); too few requests lie beyond it to be judged"


def _bandwidths(result: ReplayResult) -> tuple[float | None, float | None]:
    """Bytes/s that the median move got, and that the median hit needs to beat recomputing.

    B* of one hit = its bytes over the seconds to recompute them.
    """
    timeline = result.timeline
    loaded = timeline.moved_bytes > 0
    moved, seconds = timeline.moved_bytes[loaded], move_seconds(result)[loaded]
    recompute = timeline.recompute_hit_s[loaded]
    return _median_rate(moved, seconds), _median_rate(moved, recompute)


def _median_rate(moved: np.ndarray, seconds: np.ndarray) -> float | None:
    known = seconds > 0
    return float(np.median(moved[known] / seconds[known])) if known.any() else None


def load_sentence(fleets: Fleets) -> str | None:
    """Which options carry the load and which do not; null where all do."""
    standings = list(fleets.standings.values())
    unable = [s for s in standings if not s.is_feasible and s.result.scenario.reuse]
    if not unable:
        return None
    able = [s for s in standings if s.is_feasible]
    on = f"on {fleets.instances:,} instance{'' if fleets.instances == 1 else 's'}"
    sentence = f"{_named(unable)} cannot carry this load {on} (modelled)"
    return f"{sentence}; {_named(able)} can" if able else sentence


def _named(standings: Sequence[Standing]) -> str:
    shown: Mapping[str, float | None] = {
        s.result.scenario.title: s.result.offered_load for s in standings
    }
    return ", ".join(
        title if load is None else f"{title} (offered load {load:.2f})"
        for title, load in shown.items()
    )
