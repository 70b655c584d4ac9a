"""The what-if formulas: an approximation of the replay that needs no replay.

`kvtrace/report/assets/what_if.js` is the same in the page, function by function; a test drives both
over a grid. Exact: the bill, and the median hit's move alone. Estimated: hits follow the capacity
curve, prefill time follows hits, loads wait as in a processor-sharing queue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvtrace.audit.what_if.record import (
    WhatIfBucket,
    WhatIfFleet,
    WhatIfLink,
    WhatIfModel,
    WhatIfMoney,
    WhatIfMove,
    WhatIfResults,
    WhatIfUse,
)
from kvtrace.units import GB

_ROUNDING = 1e-9
"""Whole nodes and instances: what a product of floats may add to a whole number."""


class Setting(NamedTuple):
    """What the sliders say, relative to the base where the formulas want it so."""

    speed: float
    """Of the network ports, over the base."""
    bits_per_s: float
    pool_bytes: float
    dtype: int
    """Position of `kv_dtype`."""
    narrow: float
    """Bytes of a token over those of the base."""
    load: float
    gpu_usd: float
    dram_usd: float


class Served(NamedTuple):
    """Tokens of the window, at the base load."""

    total: float
    """By the pooled option."""
    hbm: float
    """Of these, from HBM."""
    rival: float


def evaluate(model: WhatIfModel, positions: Mapping[str, int] | None = None) -> WhatIfResults:
    """What the formulas give with the sliders at `positions`; absent ones are at their base."""
    at = read_setting(model, positions or {})
    served = None if model.fleet is None else serve(model, model.fleet, at)
    rates = [link_rate(link, model, at) for link in model.links]
    uses = [] if served is None else _uses(model, at, served, rates)
    path = 1.0 / math.fsum(1.0 / rate for rate in _stage_rates(model, rates))
    results = WhatIfResults(path_bytes_per_s=path / model.kv_ranks, links=uses)
    _break_even(results, model, at, path)
    results.moves = [_move(bucket, model, at, rates, uses) for bucket in model.buckets]
    if model.fleet is not None and served is not None:
        _saving(results, model.fleet, model.money, at, served)
    return results


def read_setting(model: WhatIfModel, positions: Mapping[str, int]) -> Setting:
    """The values at `positions`."""
    by_id = {slider.id: slider for slider in model.sliders}
    place = {ident: positions.get(ident, one.base) for ident, one in by_id.items()}
    value = {ident: one.values[place[ident]] for ident, one in by_id.items()}
    first = {ident: one.values[one.base] for ident, one in by_id.items()}
    return Setting(
        speed=value["link_speed"] / first["link_speed"],
        bits_per_s=value["link_speed"],
        pool_bytes=value["pool_size"],
        dtype=place["kv_dtype"],
        narrow=value["kv_dtype"] / first["kv_dtype"],
        load=value["load"],
        gpu_usd=value["gpu_price"],
        dram_usd=value["dram_price"],
    )


def curve_ratio(model: WhatIfModel, capacity_bytes: float) -> float:
    """Hit ratio of one LRU cache of this size; 1 without a curve.

    Formula: straight in log2 of the capacity between the points of the curve; in proportion to it
    below the first, level above the last.
    """
    sizes, ratios = model.curve_bytes, model.curve_ratio
    if not sizes:
        return 1.0
    if capacity_bytes <= sizes[0]:
        return ratios[0] * capacity_bytes / sizes[0]
    for i in range(1, len(sizes)):
        if capacity_bytes <= sizes[i]:
            share = math.log2(capacity_bytes / sizes[i - 1]) / math.log2(sizes[i] / sizes[i - 1])
            return ratios[i - 1] + share * (ratios[i] - ratios[i - 1])
    return ratios[-1]


def serve(model: WhatIfModel, fleet: WhatIfFleet, at: Setting) -> Served:
    """Tokens that each side serves of the window.

    Formula: replayed hits x H(capacity now) / H(capacity at the base), H the curve; the capacity of
    a cache is its bytes over the bytes of a token and, for the pool, over the load.
    Assumes: the pool holds what HBM holds, too, so that all hits are those of one cache of its
    size, and never fewer than HBM's; sessions that are added share nothing with the others, so that
    reuse distances grow with the load; HBM and the rival's tiers grow with the fleet.
    """

    def scaled(tokens: int, now_bytes: float, base_bytes: float) -> float:
        base = curve_ratio(model, base_bytes)
        return tokens * curve_ratio(model, now_bytes) / base if base > 0.0 else float(tokens)

    most = float(fleet.ceiling_tokens)
    hbm, pool, rival = fleet.hbm, fleet.pool, fleet.rival
    own = min(scaled(hbm.hit_tokens, hbm.capacity_bytes / at.narrow, hbm.capacity_bytes), most)
    now_bytes = at.pool_bytes / (at.narrow * at.load)
    whole = scaled(pool.hit_tokens, now_bytes, pool.capacity_bytes)
    other = scaled(rival.hit_tokens, rival.capacity_bytes / at.narrow, rival.capacity_bytes)
    return Served(min(max(whole, own), most), own, min(other, most))


def link_rate(link: WhatIfLink, model: WhatIfModel, at: Setting) -> float:
    """Usable bytes/s of one link.

    Formula: ports x speed, at most what else limits it, times the nodes of the pool over those of
    the base where it is theirs. The share of the line rate that ports reach stays.
    """
    rate = link.usable_bytes_per_s
    if link.port_bytes_per_s is not None:
        rate = link.port_bytes_per_s * at.speed
        if link.cap_bytes_per_s is not None:
            rate = min(rate, link.cap_bytes_per_s)
    if link.grows_with_nodes and model.money is not None and model.money.node_bytes > 0.0:
        rate *= pool_nodes(model.money, at) / model.money.nodes
    return rate


def pool_nodes(money: WhatIfMoney, at: Setting) -> float:
    """Whole nodes of the pool, each with as much DRAM as now; as they are where it has none."""
    if money.node_bytes <= 0.0:
        return money.nodes
    return float(max(1, math.ceil(at.pool_bytes / money.node_bytes - _ROUNDING)))


def fleet_size(fleet: WhatIfFleet, at: Setting) -> int:
    """Instances for this load, by the load alone."""
    return max(1, math.ceil(fleet.instances * at.load - _ROUNDING))


def _uses(
    model: WhatIfModel, at: Setting, served: Served, rates: Sequence[float]
) -> list[WhatIfUse]:
    """Use of each link: reads go with what the pool serves, writes with what is computed.

    Formula: (bytes read x tokens from the pool / those of the base + bytes written x tokens
    computed / those of the base) x narrow x load / seconds / links.
    """
    fleet = model.fleet
    if fleet is None:
        return []
    pool, hbm = fleet.pool.hit_tokens, fleet.hbm.hit_tokens
    loaded, computed = pool - hbm, fleet.prompt_tokens - pool
    read = (served.total - served.hbm) / loaded if loaded > 0 else 1.0
    written = (fleet.prompt_tokens - served.total) / computed if computed > 0 else 1.0
    more = fleet_size(fleet, at) / fleet.instances
    uses = []
    for link, rate in zip(model.links, rates, strict=True):
        links = link.links if link.is_shared else link.links * more
        moved = (link.bytes_read * read + link.bytes_written * written) * at.narrow * at.load
        mean = moved / fleet.replay_s / links
        peak = link.p99_over_mean
        uses.append(
            WhatIfUse(
                link_id=link.link_id,
                usable_bytes_per_s=rate,
                mean_bytes_per_s=mean,
                utilisation=mean / rate,
                p99_utilisation=None if peak is None else mean * peak / rate,
            )
        )
    return uses


def _stage_rates(model: WhatIfModel, rates: Sequence[float]) -> list[float]:
    """Bytes/s of each stage, alone: its slowest link."""
    return [min(rates[i] for i in stage.links) for stage in model.stages]


def _fixed_s(model: WhatIfModel) -> float:
    return model.lookup_s + math.fsum(stage.latency_s for stage in model.stages)


def _break_even(results: WhatIfResults, model: WhatIfModel, at: Setting, path: float) -> None:
    """The median hit alone, as in the ledger.

    Formula: move = fixed + bytes / rate; B* = bytes / (recompute - fixed).
    """
    hit, fixed_s = model.hit, _fixed_s(model)
    if hit is None:
        return
    size = hit.kv_bytes[at.dtype]
    spare_s = hit.recompute_s - fixed_s
    results.kv_bytes = size
    results.recompute_s = hit.recompute_s
    results.move_s = fixed_s + size / path
    results.needed_bytes_per_s = size / spare_s / model.kv_ranks if spare_s > 0.0 else None
    results.break_even_tokens = _least_tokens(model, at, path, fixed_s)


def _least_tokens(model: WhatIfModel, at: Setting, path: float, fixed_s: float) -> int | None:
    """Least cached length whose move is faster, straight between the lengths; null: none."""
    lengths = model.lengths
    if lengths is None:
        return None
    before = 0.0
    for i, cached in enumerate(lengths.cached_tokens):
        moved_s = fixed_s + lengths.kv_bytes[at.dtype][i] / path
        gain = lengths.recompute_s[i] - moved_s
        if gain > 0.0:
            if i == 0:
                return cached
            start = lengths.cached_tokens[i - 1]
            return math.ceil(start + (cached - start) * (-before / (gain - before)) - _ROUNDING)
        before = gain
    return None


def _move(
    bucket: WhatIfBucket,
    model: WhatIfModel,
    at: Setting,
    rates: Sequence[float],
    uses: Sequence[WhatIfUse],
) -> WhatIfMove:
    """Mean move of a bucket's hits; null where a link on the way is full.

    Formula: residual x (fixed + sum over stages of bytes / rate / (1 - use)), use that of the
    busiest link of the stage: a processor-sharing queue (Kleinrock, Queueing Systems II, 1976).
    The residual is what the replay took over that at the base.
    """
    seconds = moves_alone(bucket.moved_bytes * at.narrow, model, rates, uses)
    return WhatIfMove(
        prompt_bucket=bucket.prompt_bucket,
        move_s=None if seconds is None else bucket.residual * seconds,
        recompute_s=bucket.recompute_s,
    )


def moves_alone(
    size: float, model: WhatIfModel, rates: Sequence[float], uses: Sequence[WhatIfUse]
) -> float | None:
    """Seconds of a load of `size` bytes over links in use; null where one is full."""
    seconds = _fixed_s(model)
    for stage, rate in zip(model.stages, _stage_rates(model, rates), strict=True):
        busy = max((uses[i].utilisation for i in stage.links), default=0.0) if uses else 0.0
        if busy >= 1.0:
            return None
        seconds += size / rate / (1.0 - busy)
    return seconds


def work_gpu_s(fleet: WhatIfFleet, hit_tokens: float) -> float:
    """GPU-seconds of prefill that so many hit tokens leave: straight between replays."""
    hits, work = fleet.work_hit_tokens, fleet.work_gpu_s
    last = len(hits) - 1
    if last == 0:
        return work[0]
    i = 1
    while i < last and hit_tokens > hits[i]:
        i += 1
    slope = (work[i] - work[i - 1]) / (hits[i] - hits[i - 1])
    return max(0.0, work[i] + slope * (hit_tokens - hits[i]))


def hours_share(profile: Sequence[float], saved: float, of: int) -> float:
    """Part of the hours that instances are given back, as `GpuWorth.share_of_hours` has it."""
    if not profile:
        return 1.0
    gone = min(max(1, math.floor(saved + 0.5)), of)
    freed = [
        max(1, math.ceil(of * hour - _ROUNDING)) - max(1, math.ceil((of - gone) * hour - _ROUNDING))
        for hour in profile
    ]
    return math.fsum(freed) / (gone * len(freed))


def _saving(
    results: WhatIfResults,
    fleet: WhatIfFleet,
    money: WhatIfMoney | None,
    at: Setting,
    served: Served,
) -> None:
    """Instances that the pool gives back beyond its rival, and their worth.

    Formula: freed = (work(rival) - work(pool)) x load / GPUs / span / busy share; whole ones are
    the floor of it x `whole_share`, and the last instance stays.
    """
    results.hit_ratio = served.total / fleet.prompt_tokens
    results.rival_hit_ratio = served.rival / fleet.prompt_tokens
    results.extra_hit_ratio = (served.total - served.rival) / fleet.prompt_tokens
    spared = (work_gpu_s(fleet, served.rival) - work_gpu_s(fleet, served.total)) * at.load
    freed = max(0.0, spared) / fleet.gpus_per_instance / fleet.span_s / fleet.busy_share
    of = fleet_size(fleet, at)
    whole = max(0, min(math.floor(freed * fleet.whole_share), of - 1))
    results.freed_instances, results.whole_instances = freed, whole
    if money is None:
        return
    each, profile = money.instance_usd_per_gpu_usd * at.gpu_usd, money.profile
    share = hours_share(profile, float(whole), of)
    results.gpu_hours_per_month = whole * fleet.gpus_per_instance * money.hours_per_month * share
    saving = whole * each * share
    unrounded = min(freed, float(fleet.instances * at.load)) * each
    unrounded *= hours_share(profile, freed, of)
    cost, slope = extra_cost(money, fleet, at)
    results.saving_usd, results.unrounded_usd, results.cost_usd = saving, unrounded, cost
    results.net_usd, results.unrounded_net_usd = saving - cost, unrounded - cost
    if saving > 0.0:
        results.break_even_gpu_usd = max(0.0, cost * at.gpu_usd / saving)
    if slope > 0.0:
        price = (saving - (cost - slope * at.dram_usd)) / slope
        results.break_even_dram_usd = price if price >= 0.0 else None


def extra_cost(money: WhatIfMoney, fleet: WhatIfFleet, at: Setting) -> tuple[float, float]:
    """USD a month that the pool costs beyond the rival, and its part for each USD of a GB of DRAM.

    Formula: fixed + nodes x node + ports of GPU nodes + GB (rest + price x factor) - rival; what
    stands in the GPU nodes grows with the fleet.
    """
    more = fleet_size(fleet, at) / fleet.instances
    line = money.port_bits_per_s * at.speed
    ports = next(
        one for one in money.ports if one.upto_bits_per_s is None or line <= one.upto_bits_per_s
    )
    gb = at.pool_bytes / GB if money.node_bytes > 0.0 else 0.0
    slope = gb * money.gb_usd_per_dram_usd - money.rival_usd_per_dram_usd * more
    fixed = money.pool_usd + pool_nodes(money, at) * ports.node_usd + ports.gpu_nodes_usd * more
    return fixed + gb * money.gb_usd - money.rival_usd * more + slope * at.dram_usd, slope
