"""From replays and money to the case that the verdict decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from kvtrace.audit.findings.check import is_pool
from kvtrace.audit.findings.sampling import log_gap, sampled_log
from kvtrace.audit.money.economics import (
    freed_instances,
    instance_usd_per_month,
    option_usd_per_month,
    peak_instances,
    range_of,
)
from kvtrace.audit.record import Data, NextMeasurement, Option, Reuse
from kvtrace.audit.slo.fleets import OBSERVED, TODAY, Fleets
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.ranges import Range, ratio
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.audit.verdict.bounds import (
    all_prefill_upper_s,
    hit_tokens_per_request,
    places_in,
    recompute_s_per_request,
    spared_s_per_request,
    window_reusable_tokens,
)
from kvtrace.audit.verdict.cases import Bound, Case
from kvtrace.audit.verdict.pools import load_sentence, pool_cases
from kvtrace.audit.verdict.rivals import size_sentence, unreplayed_rivals
from kvtrace.audit.verdict.words import percent
from kvtrace.audit.view import Row, count
from kvtrace.audit.window import arrival_span_s
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.replay.scenario import PrefillTime
from kvtrace.replay.summary import percentiles
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.units import format_seconds

DEFAULT_POOL: Final = "pool_dram_rdma_direct"
"""Priced where no pool was replayed."""
_NOT_TODAY: Final = (
    ". The running system has a tier below HBM ({why}), whose size and path no log states, so that "
    "it is not what was replayed as today"
)
_FREE_PREFILL: Final = "no prefill is computed at all"
_FREE_REUSE: Final = "an unlimited cache, every move free, beyond what {rival} serves"


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """What a case is built from."""

    data: Data
    reuse: Reuse
    fleet: Fleet
    deployment: Deployment
    prefill: PrefillTime | None
    """Of one instance, for the bound without a replay; null where the FLOPs are not known."""
    options: Sequence[Option]
    fleets: Fleets
    trace: RequestTrace | None
    """The replayed requests."""
    whole_trace: RequestTrace | None
    """All requests that they were taken from; null: not at hand."""
    window_reusable: IntArray | None
    """Of the replayed requests, with the history before them; null: unknown."""
    warmup_requests: int
    refused_requests: int
    """Left out of all traces: no instance can hold them."""
    prompt_buckets: Sequence[Row]
    """Rows of `reuse/by_prompt_bucket`: prompts by length, for the estimate without a replay."""
    unconfirmed: tuple[str, ...]
    next_measurement: NextMeasurement | None
    tiers_below_hbm: str | None = None
    """How the logs show that the running system has a tier below HBM; null: they do not."""

    @property
    def results(self) -> list[ReplayResult]:
        """One per option: the better of its load decisions."""
        return [standing.result for standing in self.fleets.standings.values()]

    @property
    def rival(self) -> ReplayResult | None:
        """The best option without a pool."""
        rival = self.fleets.rival
        return None if rival is None else rival.result

    @property
    def is_whole(self) -> bool:
        """The replayed requests are all that were served."""
        return self.trace is not None and self.trace.requests >= self._served

    @property
    def everything(self) -> RequestTrace | None:
        """All requests that were served, where they are at hand; null where some are not."""
        if self.is_whole:
            return self.trace
        whole = self.whole_trace
        return whole if whole is not None and whole.requests >= self._served else None

    @property
    def _served(self) -> int:
        served = self.data.requests_by_status.get("ok", self.data.requests)
        return served - self.refused_requests

    @property
    def arrival_span_s(self) -> float | None:
        """Of the replayed requests, else of the data; null without a clock."""
        if self.trace is None or not self.fleets.standings:
            return self.data.span_s or None
        return arrival_span_s(self.trace) or None

    @cached_property
    def factor(self) -> Range:
        """Prefill seconds over the range of the GEMM efficiency."""
        return prefill_factor(self.deployment)


def window_reusable(
    given: IntArray | None,
    trace: RequestTrace | None,
    *,
    whole: RequestTrace | None,
    is_whole: bool,
) -> IntArray | None:
    """(requests,) reusable tokens of the replayed requests with their history; null: unknown."""
    if trace is None or given is not None:
        return given
    return window_reusable_tokens(trace, whole=whole, is_whole=is_whole)


def build_case(weighing: Weighing) -> Case:
    """The numbers that decide."""
    fleets, reuse, data = weighing.fleets, weighing.reuse, weighing.data
    today, rival, trace = fleets.today, fleets.rival, weighing.trace
    is_known = reuse.reusable_tokens is not None
    span_s = weighing.arrival_span_s
    pools = (
        tuple(pool_cases(fleets, weighing.fleet, span_s=span_s, factor=weighing.factor))
        if is_known and trace is not None
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
        all_prefill=_all_prefill(weighing),
        all_reuse=_all_reuse(weighing) if is_known else None,
        lowest_pool_cost=_lowest_pool_cost(weighing),
        rival_title=None if rival is None else rival.result.scenario.title,
        rival_hit_tokens=None if rival is None else _hits(rival.result),
        hbm_hit_tokens=_hbm_hits(weighing),
        prefill_utilisation=None if measured is None else measured.prefill_utilisation,
        pools=pools,
        unconfirmed=weighing.unconfirmed,
        next_measurement=weighing.next_measurement,
        gpu_usd_per_hour=range_of(weighing.fleet.gpu_usd_per_hour),
        gpus_per_instance=weighing.fleet.gpus_per_instance,
        trace_prompt_tokens=data.prompt_tokens,
        trace_reusable_tokens=reuse.reusable_tokens,
        is_history_known=weighing.window_reusable is not None,
        is_cold=is_part and not weighing.warmup_requests,
        window_doubt=_window_doubt(weighing),
        load=load_sentence(fleets),
        is_overloaded=fleets.is_overloaded,
        is_pool_needed=today is None and any(pool.is_feasible for pool in pools),
        today=_today(fleets, weighing.tiers_below_hbm) if pools else None,
        is_fewer_kept=any(s.is_kept_with_fewer for s in fleets.standings.values()),
        log_gap=log_gap(sampled_log(data.sources, data.notes)),
    )
    return _with_rivals(case, weighing)


def _with_rivals(case: Case, weighing: Weighing) -> Case:
    """The case with the rivals that nobody replayed, and what is to be said of the pool's size."""
    best = case.best_pool
    rival = weighing.rival
    if best is None or rival is None or weighing.trace is None:
        return case
    pool = weighing.fleets.standings[best.option_id].result
    return replace(
        case,
        latency=_latency(case, weighing),
        unreplayed_rivals=unreplayed_rivals(weighing.fleets, weighing.fleet),
        pool_capacity=size_sentence(
            pool.scenario,
            rival.scenario,
            weighing.reuse.hit_curve,
            block_tokens=weighing.trace.block_size_tokens,
            bytes_per_token=weighing.deployment.kv_bytes_per_token_unreplicated,
        ),
    )


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


def _today(fleets: Fleets, tiers_below_hbm: str | None) -> str | None:
    today = fleets.today
    if today is None or today.scenario.option_id == OBSERVED:
        return None
    instances = f"{fleets.instances:,} instance{'' if fleets.instances == 1 else 's'}"
    return (
        f"Today is taken to be {today.scenario.title} on {instances}: its modelled TTFT and TPOT "
        f"are the SLO{'' if tiers_below_hbm is None else _NOT_TODAY.format(why=tiers_below_hbm)}"
    )


def _latency(case: Case, weighing: Weighing) -> str | None:
    """TTFT with what is there, with the best rival, and with the pool that the verdict names."""
    best, fleets = case.best_pool, weighing.fleets
    references = [r for r in (fleets.today, weighing.rival) if r is not None]
    if best is None or not references:
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


def _bound(
    weighing: Weighing, trace: RequestTrace, seconds: FloatArray, what: str, *, is_peak: bool
) -> Bound | None:
    """The work of these requests in its busiest minutes, in instances and money."""
    span_s = arrival_span_s(trace)
    if not span_s or not int(trace.prompt_tokens.sum()):
        return None
    instances = peak_instances(trace.arrived_at_ns, seconds, span_s) * weighing.factor
    if _is_fleet_enough(weighing):
        most = float(weighing.fleet.instances)
        instances = Range(*(min(one, most) for one in _ends(instances)))
    saving = instances * instance_usd_per_month(weighing.fleet)
    return Bound(instances=instances, saving=saving, what=what, is_peak=is_peak)


def _ends(amount: Range) -> tuple[float, float, float]:
    return amount.low, amount.value, amount.high


def _is_fleet_enough(weighing: Weighing) -> bool:
    """The stated fleet carries the load without a pool: no more than all of it can be saved."""
    rival = weighing.fleets.rival
    return "instances" not in weighing.unconfirmed and rival is not None and rival.is_feasible


def _all_prefill(weighing: Weighing) -> Bound | None:
    source = weighing.everything or weighing.trace
    if source is None or not weighing.fleets.standings:
        return _mean_prefill(weighing)
    prefill = weighing.results[0].scenario.prefill
    return _bound(
        weighing,
        source,
        recompute_s_per_request(source, prefill),
        _FREE_PREFILL,
        is_peak=weighing.everything is not None,
    )


def _mean_prefill(weighing: Weighing) -> Bound | None:
    """From the histogram of prompt lengths: a mean load, no proof."""
    busy_s, span_s = _prefill_from_buckets(weighing), weighing.arrival_span_s
    if busy_s is None or span_s is None:
        return None
    freed = freed_instances(busy_s, span_s) * weighing.factor
    saving = freed * instance_usd_per_month(weighing.fleet)
    return Bound(instances=freed, saving=saving, what=_FREE_PREFILL, is_peak=False)


def _prefill_from_buckets(weighing: Weighing) -> float | None:
    """Upper bound from the histogram of prompt lengths; null where some prompt is unknown."""
    if weighing.prefill is None:
        return None
    buckets = []
    for row in weighing.prompt_buckets:
        low, requests, tokens = (
            count(row, "prompt_bucket"),
            count(row, "requests"),
            count(row, "prompt_tokens"),
        )
        if low is None or requests is None or tokens is None:
            return None
        if tokens:
            buckets.append((low, 2 * low, requests, tokens))
    known = sum(bucket[2] for bucket in buckets)
    served = weighing.data.requests_by_status.get("ok", weighing.data.requests)
    if not buckets or known < served:
        return None
    return all_prefill_upper_s(buckets, weighing.prefill)


def _all_reuse(weighing: Weighing) -> Bound | None:
    """All reuse that the rival leaves; outside the replayed part it is taken to serve nothing."""
    rival, trace = weighing.rival, weighing.trace
    if rival is None or trace is None:
        return None
    what = _FREE_REUSE.format(rival=rival.scenario.title)
    reusable, whole = weighing.window_reusable, weighing.everything
    held = hit_tokens_per_request(rival)
    places = None if whole is None else places_in(whole, trace)
    if reusable is None or whole is None or places is None:
        known = np.zeros(trace.requests, dtype=np.int64) if reusable is None else reusable
        spared = spared_s_per_request(trace, held, known, rival.scenario.prefill)
        return _bound(weighing, trace, spared, what, is_peak=False)
    everywhere = reusable_tokens(whole)
    served = np.zeros(whole.requests, dtype=np.int64)
    served[places] = held
    everywhere[places] = np.maximum(everywhere[places], reusable)
    spared = spared_s_per_request(whole, served, everywhere, rival.scenario.prefill)
    return _bound(weighing, whole, spared, what, is_peak=True)


def _lowest_pool_cost(weighing: Weighing) -> Range | None:
    """Of any pool that is considered: the lowest low, value and high."""
    ids = {o.id for o in weighing.options if is_pool(o.id)} or {DEFAULT_POOL}
    costs = [c for ident in ids if (c := option_usd_per_month(ident, weighing.fleet)) is not None]
    if not costs:
        return None
    return Range(
        min(cost.low for cost in costs),
        min(cost.value for cost in costs),
        min(cost.high for cost in costs),
    )
