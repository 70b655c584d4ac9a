"""The best case of any cache: all prefill free, or all reuse beyond the best rival, as money."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from kvtrace.audit.bounds import (
    all_prefill_upper_s,
    hit_tokens_per_request,
    places_in,
    recompute_s_per_request,
    spared_s_per_request,
)
from kvtrace.audit.money.economics import freed_instances, peak_instances
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound
from kvtrace.audit.verdict.weighing import Weighing
from kvtrace.audit.view import count
from kvtrace.audit.window import arrival_span_s
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.schema.arrays import FloatArray, RequestTrace

_FREE_PREFILL: Final = "no prefill is computed at all"
_FREE_REUSE: Final = "an unlimited cache, every move free, beyond what {rival} serves"


def all_prefill(weighing: Weighing) -> Bound | None:
    """No prefill is computed at all; null where the load or its time span is unknown."""
    source = weighing.everything or weighing.trace
    if source is None or not weighing.fleets.standings:
        return _mean_prefill(weighing)
    prefill = weighing.results[0].scenario.prefill
    bound = _bound(
        weighing,
        source,
        recompute_s_per_request(source, prefill),
        _FREE_PREFILL,
        is_peak=weighing.everything is not None,
    )
    return bound if bound is None else _as_replayed(bound, weighing)


def _as_replayed(bound: Bound, weighing: Weighing) -> Bound:
    """No lower than what replays with free prefill give back: an SLO may keep a fleet less busy
    than the bound takes it to be.
    """
    shown = float(weighing.free_prefill_saves or 0)
    if shown <= bound.instances.high:
        return bound
    instances = replace(bound.instances, high=shown)
    saving = instances * weighing.worth.instance_usd_per_month
    return replace(bound, instances=instances, saving=saving)


def all_reuse(weighing: Weighing) -> Bound | None:
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
    saving = instances * weighing.worth.instance_usd_per_month
    return Bound(instances=instances, saving=saving, what=what, is_peak=is_peak)


def _ends(amount: Range) -> tuple[float, float, float]:
    return amount.low, amount.value, amount.high


def _is_fleet_enough(weighing: Weighing) -> bool:
    """The stated fleet carries the load without a pool: no more than all of it can be saved."""
    rival = weighing.fleets.rival
    return "instances" not in weighing.unconfirmed and rival is not None and rival.is_feasible


def _mean_prefill(weighing: Weighing) -> Bound | None:
    """From the histogram of prompt lengths: a mean load, no proof."""
    busy_s, span_s = _prefill_from_buckets(weighing), weighing.arrival_span_s
    if busy_s is None or span_s is None:
        return None
    freed = freed_instances(busy_s, span_s) * weighing.factor
    saving = freed * weighing.worth.instance_usd_per_month
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
