"""The what-if of the record: the model of the page, its base, and how near that is to the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Final

from kvtrace.audit.bounds import hit_tokens_per_request
from kvtrace.audit.record import CurvePoint, Table
from kvtrace.audit.sizing.record import Sizing
from kvtrace.audit.thresholds import FLEET_BUSY_SHARE
from kvtrace.audit.verdict.cases import Case, PoolCase
from kvtrace.audit.verdict.weighing import Weighing
from kvtrace.audit.what_if.bill import build_money
from kvtrace.audit.what_if.formulas import evaluate
from kvtrace.audit.what_if.record import (
    WhatIf,
    WhatIfCheck,
    WhatIfFleet,
    WhatIfHit,
    WhatIfModel,
    WhatIfResults,
    WhatIfSide,
)
from kvtrace.audit.what_if.sliders import (
    DTYPES,
    dram_price_slider,
    dtype_slider,
    gpu_price_slider,
    link_slider,
    load_slider,
    size_slider,
)
from kvtrace.audit.what_if.way import (
    PLAIN_PATH,
    add_buckets,
    hits_by_length,
    in_dtypes,
    plain_way,
    pool_tier,
    replayed_way,
    weighed_hit,
)
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.ledger import build_ledger
from kvtrace.cost.tier_paths import find_path, path_title
from kvtrace.replay.options.option import ReplayOption, Wire
from kvtrace.replay.options.pool_tiers import PATHS
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import TierSpec
from kvtrace.replay.summary import gpu_seconds

_BITS: Final = 8.0
_MIDDLE: Final = 0.5
"""Of an instance: replays in whole ones leave open where between them the fleet would stand."""
_WORK: Final = ("recompute", "hbm_only")
"""Replays that give the prefill time of few hits, beside the rival and the pool."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """The pool that the verdict weighs, its rival, and both replays."""

    case: PoolCase
    pool: ReplayResult
    rival: ReplayResult
    tier: TierSpec
    """The pool itself."""


def build_what_if(
    case: Case,
    weighing: Weighing,
    *,
    option: str | None,
    options: Sequence[ReplayOption],
    sizing: Sizing,
    tables: Mapping[str, Table],
) -> WhatIf:
    """The model for the pool `option` of the verdict; without one only moves can be changed."""
    fleet, pair = weighing.fleet, _pair(case, weighing, option)
    deployment = _as_replayed(weighing.deployment, pair)
    formats = in_dtypes(deployment, _dtypes(deployment))
    curve = _curve(weighing.reuse.hit_curve)
    hit = weighed_hit(weighing.whole_trace or weighing.trace, deployment, formats)
    known = next((one for one in options if one.option_id == option), None)
    part = None if pair is None else _fleet(pair, weighing)
    bill = None
    if pair is not None and case.has_monthly_load:
        bill = build_money(weighing.bills, weighing.worth, _id(pair.pool), _id(pair.rival))
    way = (
        plain_way(deployment.path(PLAIN_PATH))
        if pair is None
        else replayed_way(pair.pool, pair.tier, fleet, deployment, tables)
    )
    ours = next(i for i, one in enumerate(formats) if one.kv_dtype == deployment.kv_dtype)
    prices = fleet.prices
    model = WhatIfModel(
        sliders=[
            link_slider(_line_bits_per_s(weighing, known)),
            size_slider(part, bill, has_curve=bool(curve)),
            dtype_slider(formats, ours),
            load_slider(part),
            gpu_price_slider(fleet.gpu_usd_per_hour, bill),
            dram_price_slider(prices["dram_usd_per_gb"], bill),
        ],
        kv_ranks=deployment.kv_ranks,
        path_title=path_title(deployment, PLAIN_PATH) if pair is None else pair.pool.scenario.title,
        lookup_s=way.lookup_s,
        stages=way.stages,
        links=way.links,
        hit=hit,
        lengths=hits_by_length(hit, deployment, formats),
        buckets=[],
        curve_bytes=[size for size, _ in curve],
        curve_ratio=[ratio for _, ratio in curve],
        fleet=part,
        money=bill,
    )
    if pair is not None and part is not None:
        part.whole_share = _whole_share(evaluate(model), pair.case)
    if pair is not None and weighing.trace is not None:
        add_buckets(model, weighing.trace, pair.pool)
    wire = None if known is None else known.wire
    return WhatIf(
        model=model,
        base=evaluate(model),
        checks=_checks(model, pair, deployment, wire=wire, sizing=sizing),
    )


def _pair(case: Case, weighing: Weighing, option: str | None) -> _Pair | None:
    pool = next((one for one in case.pools if one.option_id == option), None)
    rival = None if pool is None else weighing.rival_of(pool)
    if pool is None or rival is None or not weighing.arrival_span_s:
        return None
    result = weighing.fleets.standings[pool.option_id].result
    tier = pool_tier(result)
    return None if tier is None else _Pair(pool, result, rival, tier)


def _as_replayed(deployment: Deployment, pair: _Pair | None) -> Deployment:
    """The service with the KV format of the pool's replay, which may be narrower than today's."""
    if pair is None:
        return deployment
    width = pair.pool.scenario.kv_bytes_per_token
    formats = in_dtypes(deployment, [deployment.kv_dtype, *DTYPES])
    return next((one for one in formats if isclose(one.kv_bytes_per_token, width)), deployment)


def _id(result: ReplayResult) -> str:
    return result.scenario.option_id


def _dtypes(deployment: Deployment) -> list[str]:
    """Names of formats, the widest first; of equally wide ones today's, else the first."""
    names = dict.fromkeys((deployment.kv_dtype, *DTYPES))
    widths: dict[float, str] = {}
    for one in in_dtypes(deployment, list(names)):
        widths.setdefault(one.kv_bytes_per_token, one.kv_dtype)
    return [widths[width] for width in sorted(widths, reverse=True)]


def _curve(points: Sequence[CurvePoint]) -> list[tuple[float, float]]:
    """(bytes, hit ratio) of each capacity that is above nothing, rising."""
    known = (
        (point.capacity_bytes, point.hit_ratio_tokens)
        for point in points
        if point.capacity_bytes and point.hit_ratio_tokens is not None
    )
    return sorted(dict(known).items())


def _line_bits_per_s(weighing: Weighing, known: ReplayOption | None) -> float:
    """Line rate of a GPU node's port on the way: as the option says, else as the fleet has it."""
    network = weighing.fleet.network
    if known is not None and known.port_bits_per_s is not None:
        return known.port_bits_per_s
    if known is not None and known.wire == "tcp":
        return network.storage_port_bytes_per_s.value * _BITS
    return network.compute_port_bytes_per_s.value * _BITS


def _fleet(pair: _Pair, weighing: Weighing) -> WhatIfFleet | None:
    trace, span_s = weighing.trace, weighing.arrival_span_s
    if trace is None or not span_s:
        return None
    pool, rival = pair.pool, pair.rival
    prompt, hits = int(trace.prompt_tokens.sum()), _hits(pool)
    reusable = weighing.window_reusable
    most = prompt if reusable is None else int(reusable.sum())
    hbm = pool.scenario.hbm_capacity_bytes * pool.scenario.instances
    work = _work([*_named(weighing.results, _WORK), rival, pool], weighing)
    return WhatIfFleet(
        instances=weighing.fleet.instances,
        gpus_per_instance=weighing.fleet.gpus_per_instance,
        span_s=span_s,
        replay_s=pool.span_s,
        busy_share=FLEET_BUSY_SHARE.value,
        prompt_tokens=prompt,
        ceiling_tokens=max(most, hits, _hits(rival)),
        pool=_side(pool, hits, pair.tier.capacity_bytes),
        rival=_side(rival, _hits(rival), _capacity_bytes(rival, weighing.deployment)),
        hbm=_side(
            pool,
            int(pool.timeline.hit_tokens["hbm"].sum()),
            hbm * _copies(weighing.deployment),
        ),
        work_hit_tokens=[tokens for tokens, _ in work],
        work_gpu_s=[seconds for _, seconds in work],
    )


def _whole_share(base: WhatIfResults, case: PoolCase) -> float:
    """What makes whole instances at the base those of the replays; 1 where they are."""
    replayed, freed = case.instances_saved.value, base.freed_instances
    if base.whole_instances == replayed or not freed:
        return 1.0
    return (replayed + _MIDDLE) / freed


def _side(result: ReplayResult, hits: int, capacity_bytes: float) -> WhatIfSide:
    scenario = result.scenario
    return WhatIfSide(
        option=scenario.option_id,
        title=scenario.title,
        hit_tokens=hits,
        capacity_bytes=float(capacity_bytes),
    )


def _hits(result: ReplayResult) -> int:
    return int(hit_tokens_per_request(result).sum())


def _named(results: Iterable[ReplayResult], names: Sequence[str]) -> list[ReplayResult]:
    return [one for one in results if _id(one) in names]


def _work(results: Sequence[ReplayResult], weighing: Weighing) -> list[tuple[int, float]]:
    """(hit tokens, GPU-seconds of prefill) of each, rising in hits; of equal hits the last."""
    gpus = weighing.fleet.gpus_per_instance
    return sorted({_hits(one): gpu_seconds(one) * gpus for one in results}.items())


def _copies(deployment: Deployment) -> float:
    """One copy over what ranks hold of each token."""
    return deployment.kv_bytes_per_token_unreplicated / deployment.kv_bytes_per_token


def _capacity_bytes(result: ReplayResult, deployment: Deployment) -> float:
    """Of its largest cache over all instances, in bytes of one copy."""
    scenario, copies = result.scenario, _copies(deployment)
    sizes = [scenario.hbm_capacity_bytes * scenario.instances * copies]
    for tier in scenario.tiers:
        here = 1 if tier.scope == "shared" else scenario.instances
        own = deployment.kv_bytes_per_token_unreplicated
        share = copies if tier.stored_bytes_per_token is None else own / tier.stored_bytes_per_token
        sizes.append(tier.capacity_bytes * here * share)
    return max(sizes)


def _checks(
    model: WhatIfModel,
    pair: _Pair | None,
    deployment: Deployment,
    *,
    wire: Wire | None,
    sizing: Sizing,
) -> list[WhatIfCheck]:
    """What the audit says of the same numbers at the base."""
    base, checks = evaluate(model), []
    path = PLAIN_PATH if wire is None else PATHS[wire]
    point = next((one for one in sizing.paths if one.path == path), None)
    is_todays = pair is None or not pair.case.is_quantised
    if point is not None and point.needed is not None and is_todays:
        checks.append(_check("needed", "bytes/s", base.needed_bytes_per_s, point.needed.value))
        checks.append(_check("move", "s", base.move_s, point.move_s))
    if model.hit is not None:
        least = _least_tokens(deployment, model.hit, path)
        checks.append(_check("tokens", "tokens", base.break_even_tokens, least))
    if pair is None or model.fleet is None:
        return checks
    replayed = pair.case.instances_saved.value
    checks.append(_check("instances", "instances", base.whole_instances, replayed))
    if model.money is not None:
        saving, cost = pair.case.saving.value, pair.case.cost.value
        checks.append(_check("saving", "USD/month", base.saving_usd, saving))
        checks.append(_check("cost", "USD/month", base.cost_usd, cost))
        checks.append(_check("net", "USD/month", base.net_usd, saving - cost))
    return checks


def _check(
    ident: str, unit: str, here: float | None, audit: float | int | str | None
) -> WhatIfCheck:
    """Whole numbers as floats, as the record is read back."""
    return WhatIfCheck(
        id=ident,
        unit=unit,
        here=None if here is None else float(here),
        audit=float(audit) if isinstance(audit, int | float) else None,
    )


def _least_tokens(deployment: Deployment, hit: WhatIfHit, path_id: str) -> int | None:
    """The least length of the ledger, which searches all lengths."""
    ledger = build_ledger(
        deployment,
        tokens=hit.prompt_tokens,
        cached_tokens=hit.cached_tokens,
        paths=(find_path(deployment, path_id),),
        depth="serial",
    )
    return ledger.path(path_id).break_even_tokens
