"""From replays and money to the case that the verdict decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvtrace.audit.bounds import (
    hit_tokens_per_request,
)
from kvtrace.audit.findings.sampling import log_gap, sampled_log
from kvtrace.audit.money.economics import range_of
from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.slo.fleets import OBSERVED, TODAY
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.ranges import Range, ratio
from kvtrace.audit.uncertainty.sensitivity import curve_ratio
from kvtrace.audit.verdict.best_cases import all_prefill, all_reuse
from kvtrace.audit.verdict.cases import Case
from kvtrace.audit.verdict.pools import PoolPrices, load_sentence, pool_cases
from kvtrace.audit.verdict.rivals import quantised_rivals, size_sentence, unreplayed_rivals
from kvtrace.audit.verdict.weighing import Weighing
from kvtrace.audit.words import percent
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.summary import percentiles
from kvtrace.units import format_bytes, format_seconds

DEFAULT_POOL: Final = "pool_dram_rdma_direct"
"""Priced where no pool was replayed."""
_NOT_TODAY: Final = (
    ". The running system has a tier below HBM ({why}), which was not replayed as today: "
    "`below_hbm` under `[instances]` of a fleet file states it"
)
_NOBODY_SAID: Final = ". That it keeps KV in HBM alone is an assumption: {why}"


def build_case(weighing: Weighing) -> Case:
    """The numbers that decide."""
    fleets, reuse, data = weighing.fleets, weighing.reuse, weighing.data
    today, rival, trace = fleets.today, fleets.rival, weighing.trace
    is_known = reuse.reusable_tokens is not None
    span_s = weighing.arrival_span_s
    pools = (
        tuple(pool_cases(fleets, _prices(weighing, span_s)))
        if is_known and trace is not None and span_s
        else ()
    )
    is_part = trace is not None and not weighing.is_whole
    measured = today or next((r for r in weighing.results if r.scenario.option_id == TODAY), None)
    case = Case(
        grade=data.evidence_grade,
        requests=data.requests,
        span_s=data.span_s,
        prompt_tokens=data.prompt_tokens if trace is None else int(trace.prompt_tokens.sum()),
        reusable_tokens=_reusable(weighing) if is_known else None,
        all_prefill=all_prefill(weighing),
        all_reuse=all_reuse(weighing) if is_known else None,
        lowest_pool_cost=_lowest_pool_cost(weighing),
        smallest_pool_cost=weighing.bills.smallest_pool_usd_per_month(),
        weighed_size=_weighed_size(weighing),
        rival_title=None if rival is None else rival.result.scenario.title,
        rival_hit_tokens=None if rival is None else _hits(rival.result),
        hbm_hit_tokens=_hbm_hits(weighing),
        prefill_utilisation=None if measured is None else measured.prefill_utilisation,
        pools=pools,
        unconfirmed=weighing.unconfirmed,
        next_measurement=weighing.next_measurement,
        gpu_usd_per_hour=range_of(weighing.fleet.gpu_usd_per_hour),
        contract=weighing.worth.note,
        paid_until=weighing.worth.paid_until,
        instance_after=weighing.worth.instance_usd_per_month,
        gpus_per_instance=weighing.fleet.gpus_per_instance,
        trace_prompt_tokens=data.prompt_tokens,
        trace_reusable_tokens=reuse.reusable_tokens,
        is_history_known=weighing.window_reusable is not None,
        is_cold=is_part and not weighing.warmup_requests,
        window_doubt=_window_doubt(weighing),
        load=load_sentence(fleets),
        is_peak_stated=weighing.fleet.is_peak_given,
        is_paid_by_the_hour=weighing.worth.kind == "elastic",
        is_slo_stated=weighing.fleet.slo.is_stated,
        is_overloaded=fleets.is_overloaded,
        is_pool_needed=today is None and any(pool.is_feasible for pool in pools),
        today=_today(weighing) if pools else None,
        is_fewer_kept=any(s.is_kept_with_fewer for s in fleets.standings.values()),
        log_gap=log_gap(sampled_log(data.sources, data.notes)),
        around=weighing.around,
    )
    return _with_rivals(case, weighing)


def _prices(weighing: Weighing, span_s: float) -> PoolPrices:
    return PoolPrices(weighing.bills, weighing.worth, span_s, weighing.factor)


def _with_rivals(case: Case, weighing: Weighing) -> Case:
    """The case with the rivals that nobody replayed, and what is to be said of the pool's size."""
    best = case.best_pool
    rival = None if best is None else weighing.rival_of(best)
    if best is None or rival is None or weighing.trace is None:
        return case
    pool = weighing.fleets.standings[best.option_id].result
    is_small, size = size_sentence(
        pool.scenario,
        rival.scenario,
        weighing.reuse.hit_curve,
        block_tokens=weighing.trace.block_size_tokens,
        bytes_per_token=_stored_bytes_per_token(pool.scenario, weighing),
    )
    return replace(
        case,
        latency=_latency(case, weighing),
        unreplayed_rivals=unreplayed_rivals(
            weighing.fleets, weighing.fleet, most_local_ratio=_most_local_ratio(weighing)
        ),
        narrow_rivals=quantised_rivals(weighing.fleets, best.option_id),
        pool_capacity=size,
        is_pool_small=is_small,
    )


def _stored_bytes_per_token(pool: Scenario, weighing: Weighing) -> float:
    """Of its deepest tier: fewer where its KV has fewer bits than today's."""
    stored = pool.tiers[-1].stored_bytes_per_token if pool.tiers else None
    return stored or weighing.deployment.kv_bytes_per_token_unreplicated


def _most_local_ratio(weighing: Weighing) -> float | None:
    """Of the prompt tokens, what one cache of all HBM and idle DRAM hits; null: no curve."""
    trace, fleet, deployment = weighing.trace, weighing.fleet, weighing.deployment
    if trace is None or not weighing.reuse.hit_curve:
        return None
    each = deployment.hbm_cache_bytes / deployment.kv_bytes_per_token
    each += fleet.dram_idle_bytes_per_instance.value / deployment.kv_bytes_per_token_unreplicated
    blocks = fleet.instances * each / max(1, trace.block_size_tokens)
    return curve_ratio(weighing.reuse.hit_curve, blocks)


def _reusable(weighing: Weighing) -> int | None:
    """Of the weighed requests: with their history, else what the window shows by itself."""
    if weighing.trace is None or not weighing.fleets.standings:
        return weighing.reuse.reusable_tokens
    known = weighing.window_reusable
    return int((reusable_tokens(weighing.trace) if known is None else known).sum())


def _window_doubt(weighing: Weighing) -> str | None:
    """The replayed part reuses clearly less than the log: what came before the log is not seen."""
    trace, reuse = weighing.trace, weighing.reuse
    if trace is None or weighing.is_whole or reuse.reusable_ratio_tokens is None:
        return None
    here = ratio(_reusable(weighing), int(trace.prompt_tokens.sum()))
    if here is None or here >= reuse.reusable_ratio_tokens - LITTLE.value:
        return None
    return (
        f"{percent(here)} of the prompt tokens of the replayed requests are reusable, "
        f"{percent(reuse.reusable_ratio_tokens)} of those of the whole log"
    )


def _hits(result: ReplayResult) -> int:
    return int(hit_tokens_per_request(result).sum())


def _hbm_hits(weighing: Weighing) -> int | None:
    hbm = weighing.fleets.standings.get(TODAY)
    return None if hbm is None else _hits(hbm.result)


def _today(weighing: Weighing) -> str | None:
    """What is compared with as the running system, and who says that it is."""
    fleets, below = weighing.fleets, weighing.fleet.below_hbm
    today = fleets.today
    if today is None:
        return None
    instances = f"{fleets.instances:,} instance{'' if fleets.instances == 1 else 's'}"
    slo = (
        "; the SLO is the one that is stated"
        if fleets.is_slo_stated
        else ": its modelled TTFT and TPOT are the SLO"
    )
    if today.scenario.option_id == OBSERVED:
        return f"Today is {today.scenario.title} on {instances}{slo} ({below.source})"
    doubt = _NOBODY_SAID.format(why=below.source) if below.kind == "assumed" else ""
    if weighing.tiers_below_hbm is not None:
        doubt = _NOT_TODAY.format(why=weighing.tiers_below_hbm)
    return f"Today is taken to be {today.scenario.title} on {instances}{slo}{doubt}"


def _latency(case: Case, weighing: Weighing) -> str | None:
    """TTFT with what is there, with the best rival, and with the pool that the verdict names."""
    best, fleets = case.best_pool, weighing.fleets
    if best is None:
        return None
    references = [r for r in (fleets.today, weighing.rival_of(best)) if r is not None]
    if not references:
        return None
    shown = {result.scenario.title: _tail(result) for result in references}
    shown[best.title] = _tail(fleets.standings[best.option_id].result)
    names = {name for name, _ in shown.values()}
    if len(names) != 1 or None in names:
        return None
    texts = [f"{format_seconds(seconds)} with {title}" for title, (_, seconds) in shown.items()]
    return (
        f"TTFT {names.pop()} (modelled): {', '.join(texts)}. This verdict is about money; for a "
        "latency target compare the options"
    )


def _tail(result: ReplayResult) -> tuple[str | None, float]:
    """p99 if known, else p90."""
    _, _, p90, p99 = percentiles(result.timeline.ttft_s)
    if p99 is not None:
        return "p99", p99
    return (None, 0.0) if p90 is None else ("p90", p90)


def _pool_ids(weighing: Weighing) -> list[str]:
    return [o.id for o in weighing.options if is_pool(o.id)] or [DEFAULT_POOL]


def _weighed_size(weighing: Weighing) -> str:
    """Title and bytes of the pool whose bill is the lowest; empty where none is known."""
    bills = {one: weighing.bills.usd_per_month(one) for one in _pool_ids(weighing)}
    known = {one: cost for one, cost in bills.items() if cost is not None}
    if not known:
        return ""
    cheapest = min(known, key=lambda one: (known[one].low, known[one].value))
    standing = weighing.fleets.standings.get(cheapest)
    if standing is None:
        return f"{format_bytes(weighing.fleet.pool_dram_bytes.value)} of DRAM on nodes of its own"
    tiers = standing.result.scenario.tiers
    held = sum(tier.capacity_bytes for tier in tiers if tier.scope == "shared")
    return f"{standing.result.scenario.title}, {format_bytes(held)}"


def _lowest_pool_cost(weighing: Weighing) -> Range | None:
    """Of any pool that is weighed: the lowest low, value and high."""
    ids = _pool_ids(weighing)
    costs = [c for ident in ids if (c := weighing.bills.usd_per_month(ident)) is not None]
    if not costs:
        return None
    return Range(
        min(cost.low for cost in costs),
        min(cost.value for cost in costs),
        min(cost.high for cost in costs),
    )
