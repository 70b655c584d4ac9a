"""From replays and money to the case that the verdict decides, and its carrying numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.audit.bounds import (
    all_prefill_upper_s,
    hit_tokens_per_request,
    recompute_instance_s,
    reusable_tokens_per_request,
    spared_by_all_reuse_s,
)
from kvtrace.audit.cases import Bound, Case, PoolCase
from kvtrace.audit.checks import is_local, is_pool
from kvtrace.audit.economics import (
    freed_instances,
    instance_usd_per_month,
    option_usd_per_month,
    range_of,
    value_saving,
)
from kvtrace.audit.options import TODAY, spread
from kvtrace.audit.ranges import Range, ratio
from kvtrace.audit.record import Data, NextMeasurement, Option, Percentiles, Reuse
from kvtrace.audit.view import Row, count
from kvtrace.audit.window import arrival_span_s
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import PrefillTime
from kvtrace.replay.summary import gpu_seconds, move_seconds
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import format_seconds

DEFAULT_POOL: Final = "pool_dram_rdma_direct"
"""Priced where no pool was replayed."""
ROUTING: Final = "kv_routing"
_FREE_PREFILL: Final = "no prefill is computed at all"
_FREE_REUSE: Final = "an unlimited cache, every move free, beyond what {rival} serves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """What a case is built from."""

    data: Data
    reuse: Reuse
    fleet: Fleet
    prefill: PrefillTime | None
    """Of one instance, for the bound without a replay; null where the FLOPs are not known."""
    options: Sequence[Option]
    results: Sequence[ReplayResult]
    trace: RequestTrace | None
    """The replayed requests."""
    prompt_buckets: Sequence[Row]
    """Rows of `reuse/by_prompt_bucket`: prompts by length, for the bound without a replay."""
    unconfirmed: tuple[str, ...]
    next_measurement: NextMeasurement | None

    @property
    def rival(self) -> ReplayResult | None:
        """The best option without a pool: the least GPU time, the cheaper of equals."""
        rivals = [result for result in self.results if is_local(result.scenario.option_id)]
        return min(
            rivals,
            key=lambda r: (gpu_seconds(r), r.scenario.option_id != TODAY, r.scenario.option_id),
            default=None,
        )

    @property
    def today(self) -> ReplayResult | None:
        """What a service has without buying anything: prefix caching in HBM."""
        return next((r for r in self.results if r.scenario.option_id == TODAY), self.rival)

    @property
    def arrival_span_s(self) -> float | None:
        """Of the replayed requests, else of the data; null without a clock."""
        if self.trace is None or not self.results:
            return self.data.span_s or None
        return arrival_span_s(self.trace) or None


def build_case(weighing: Weighing) -> Case:
    """The numbers that decide."""
    rival, trace = weighing.rival, weighing.trace
    today = weighing.today
    is_replayed = trace is not None and rival is not None
    reusable, prompt = weighing.reuse.reusable_tokens, weighing.data.prompt_tokens
    if trace is not None and is_replayed and reusable is not None:
        reusable = int(reusable_tokens_per_request(trace).sum())
        prompt = int(trace.prompt_tokens.sum())
    hbm = next((r for r in weighing.results if r.scenario.option_id == TODAY), None)
    pools = tuple(_pool_cases(weighing)) if reusable is not None else ()
    return Case(
        grade=weighing.data.evidence_grade,
        requests=weighing.data.requests,
        span_s=weighing.data.span_s,
        prompt_tokens=prompt,
        reusable_tokens=reusable,
        all_prefill=_all_prefill(weighing),
        all_reuse=_all_reuse(weighing) if reusable is not None else None,
        lowest_pool_cost=_lowest_pool_cost(weighing),
        rival_title=None if rival is None else rival.scenario.title,
        rival_hit_tokens=None if rival is None else int(hit_tokens_per_request(rival).sum()),
        hbm_hit_tokens=None if hbm is None else int(hit_tokens_per_request(hbm).sum()),
        prefill_utilisation=None if today is None else today.prefill_utilisation,
        pools=pools,
        unconfirmed=weighing.unconfirmed,
        next_measurement=weighing.next_measurement,
        unreplayed_rivals=_unreplayed_rivals(weighing),
        gpu_usd_per_hour=range_of(weighing.fleet.gpu_usd_per_hour),
        gpus_per_instance=weighing.fleet.gpus_per_instance,
        latency=_latency(weighing) if pools else None,
    )


def _latency(weighing: Weighing) -> str | None:
    """TTFT with what is there, with the best rival, and with the fastest pool; p99 if known."""
    references = [r for r in (weighing.today, weighing.rival) if r is not None]
    titles = {result.scenario.option_id: result.scenario.title for result in references}
    options = {option.id: option for option in weighing.options}
    pools = [option for option in weighing.options if is_pool(option.id)]
    name = "p99" if all(option.ttft_s.p99 is not None for option in options.values()) else "p90"

    def tail(option: Option) -> float | None:
        return option.ttft_s.p99 if name == "p99" else option.ttft_s.p90

    known = [(seconds, pool) for pool in pools if (seconds := tail(pool)) is not None]
    before = [
        f"{format_seconds(seconds)} with {title}"
        for ident, title in titles.items()
        if (seconds := tail(options[ident])) is not None
    ]
    if not known or not before:
        return None
    seconds, pool = min(known, key=lambda entry: (entry[0], entry[1].id))
    return (
        f"TTFT {name} (modelled): {', '.join(before)}, {format_seconds(seconds)} with "
        f"{pool.title}. This verdict is about money; for a latency target compare the options"
    )


def _unreplayed_rivals(weighing: Weighing) -> tuple[str, ...]:
    """Cheaper rivals that nobody replayed, with what they could serve at most."""
    ids = {result.scenario.option_id for result in weighing.results}
    if not weighing.results or ROUTING in ids or weighing.fleet.instances < 2:
        return ()
    most = _one_local_cache_ratio(weighing)
    ceiling = (
        ""
        if most is None
        else f"; all HBM and idle DRAM as one cache would serve {100 * most:.1f} % of the prompt "
        "tokens (idealised)"
    )
    return (
        "routing that follows the cache, which costs nothing and was not replayed, does not serve "
        f"the same hits{ceiling}",
    )


def _one_local_cache_ratio(weighing: Weighing) -> float | None:
    """Hit ratio in tokens of one LRU cache as large as all HBM and idle DRAM together."""
    local = [r.scenario for r in weighing.results if is_local(r.scenario.option_id)]
    capacity = max(
        (
            s.instances * (s.hbm_capacity_bytes + sum(tier.capacity_bytes for tier in s.tiers))
            for s in local
        ),
        default=0.0,
    )
    above = [
        point.hit_ratio_tokens
        for point in weighing.reuse.hit_curve
        if point.capacity_bytes is not None and point.capacity_bytes >= capacity
    ]
    return above[0] if above else weighing.reuse.reusable_ratio_tokens


def _bound(weighing: Weighing, busy_s: float | None, what: str) -> Bound | None:
    span_s = weighing.arrival_span_s
    if busy_s is None or span_s is None:
        return None
    freed = freed_instances(busy_s, span_s)
    return Bound(instances=freed, saving=freed * instance_usd_per_month(weighing.fleet), what=what)


def _all_prefill(weighing: Weighing) -> Bound | None:
    if weighing.results:
        busy_s: float | None = recompute_instance_s(weighing.results[0])
    else:
        busy_s = _prefill_from_buckets(weighing)
    return _bound(weighing, busy_s, _FREE_PREFILL)


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
    rival, trace = weighing.rival, weighing.trace
    if rival is None or trace is None:
        return None
    return _bound(
        weighing,
        spared_by_all_reuse_s(trace, rival),
        _FREE_REUSE.format(rival=rival.scenario.title),
    )


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


def _pool_cases(weighing: Weighing) -> Iterable[PoolCase]:
    rival, today = weighing.rival, weighing.today
    if rival is None or today is None:
        return
    by_id = {option.id: option for option in weighing.options}
    for result in weighing.results:
        option = by_id[result.scenario.option_id]
        cost = option_usd_per_month(option.id, weighing.fleet)
        if not is_pool(option.id) or cost is None or min(result.span_s, rival.span_s) <= 0:
            continue
        freed = freed_instances(
            gpu_seconds(rival) - gpu_seconds(result),
            max(result.span_s, rival.span_s),
            shortest_span_s=weighing.arrival_span_s,
        )
        saving = value_saving(freed, weighing.fleet, prefill_utilisation=today.prefill_utilisation)
        is_no_slower, slowdown = _compare_ttft(option, (today, rival))
        path, break_even = _bandwidths(result)
        yield PoolCase(
            option_id=option.id,
            title=option.title,
            extra_hit_tokens=int(
                hit_tokens_per_request(result).sum() - hit_tokens_per_request(rival).sum()
            ),
            saving=saving.usd_per_month,
            unrounded_saving_usd=saving.unrounded_usd_per_month,
            cost=cost,
            instances_saved=freed,
            is_no_slower=is_no_slower,
            slowdown=slowdown,
            tail_s=option.ttft_s.p99 or option.ttft_s.p90 or 0.0,
            net_negative_share=ratio(option.hit_cost.net_negative_hits, option.hit_cost.hits),
            path_bytes_per_s=path,
            break_even_bytes_per_s=break_even,
        )


def _compare_ttft(option: Option, references: Sequence[ReplayResult]) -> tuple[bool, str]:
    """No worse than each reference at p90 and p99; the pair of numbers that says so best."""
    pairs = []
    for reference in references:
        theirs = spread(reference.timeline.ttft_s)
        pairs.extend(_tails(option.ttft_s, theirs, reference.scenario.title))
    if not pairs:
        return False, f"{option.title}: TTFT unknown"
    mine, theirs_s, name, title = max(pairs, key=lambda pair: pair[0] / max(pair[1], 1e-12))
    text = (
        f"{option.title}: {name} {format_seconds(mine)} against {format_seconds(theirs_s)} "
        f"with {title}"
    )
    return all(pair[0] <= pair[1] for pair in pairs), text


def _tails(
    mine: Percentiles, theirs: Percentiles, title: str
) -> list[tuple[float, float, str, str]]:
    named = (("p90", mine.p90, theirs.p90), ("p99", mine.p99, theirs.p99))
    return [
        (own, other, n, title) for n, own, other in named if own is not None and other is not None
    ]


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
