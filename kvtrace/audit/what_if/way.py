"""The way of the pool's KV: its stages, links, the hit that is weighed, and hits by length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kvtrace.audit.bounds import knows_flops
from kvtrace.audit.record import Table
from kvtrace.audit.sizing.bandwidth_point import TypicalHit, typical_hit
from kvtrace.audit.sizing.link_budget import BUDGET_TABLE
from kvtrace.audit.what_if.formulas import evaluate, moves_alone
from kvtrace.audit.what_if.record import (
    WhatIfBucket,
    WhatIfHit,
    WhatIfLengths,
    WhatIfLink,
    WhatIfModel,
    WhatIfStage,
)
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.transfer import MovePath
from kvtrace.cost.ways import build_hit
from kvtrace.errors import KvtraceError
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import TierSpec
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import RequestTrace

EXAMPLE: Final = TypicalHit(2000, 1900)
"""Where no reuse is known: the default of `kvtrace ledger`."""
_PER_OCTAVE: Final = 4
_OCTAVES: Final = range(4, 18)
_NIC: Final = "nic_"
_POOL_NIC: Final = "pool_nic_"
_PEERS: Final = "peer_ports"
PLAIN_PATH: Final = "pool_rdma_bounce"
"""Shown where no pool was weighed."""


@dataclass(frozen=True, slots=True)
class Way:
    """How KV of the pool comes into HBM."""

    lookup_s: float
    stages: list[WhatIfStage]
    links: list[WhatIfLink]


def plain_way(path: MovePath) -> Way:
    """A path of the cost model, without traffic of a replay."""
    links: list[WhatIfLink] = []
    stages = []
    for hop in path.stages:
        places = []
        for link in hop.links:
            places.append(len(links))
            rate = link.bytes_per_s
            follows = link.link_id.startswith(_NIC)
            links.append(
                WhatIfLink(
                    link_id=link.link_id,
                    links=1,
                    is_shared=False,
                    usable_bytes_per_s=rate,
                    port_bytes_per_s=rate if follows else None,
                    bytes_read=0.0,
                    bytes_written=0.0,
                )
            )
        stages.append(WhatIfStage(latency_s=hop.latency_s, links=places))
    return Way(path.lookup_s, stages, links)


def replayed_way(
    result: ReplayResult,
    tier: TierSpec,
    fleet: Fleet,
    deployment: Deployment,
    tables: Mapping[str, Table],
) -> Way:
    """The reads of the pool's own tier, over links with the traffic of the replay."""
    scenario = result.scenario
    peaks = _peaks(tables.get(BUDGET_TABLE), scenario.option_id)
    uses = {use.link_id: use for use in result.link_use}
    ids = list(dict.fromkeys([*(i for stage in tier.read for i in stage.link_ids), *uses]))
    links = []
    for ident in ids:
        spec, use = scenario.links[ident], uses.get(ident)
        port, cap = _ports(ident, spec.bytes_per_s, fleet, deployment)
        links.append(
            WhatIfLink(
                link_id=ident,
                links=1 if use is None else use.links,
                is_shared=spec.scope == "shared",
                usable_bytes_per_s=spec.bytes_per_s,
                port_bytes_per_s=port,
                cap_bytes_per_s=cap,
                grows_with_nodes=ident.startswith(_POOL_NIC),
                bytes_read=0.0 if use is None else use.bytes_read,
                bytes_written=0.0 if use is None else use.bytes_written,
                p99_over_mean=peaks.get(ident),
            )
        )
    stages = [
        WhatIfStage(latency_s=stage.latency_s, links=[ids.index(i) for i in stage.link_ids])
        for stage in tier.read
    ]
    return Way(tier.lookup_s, stages, links)


def pool_tier(result: ReplayResult) -> TierSpec | None:
    """The first tier that all instances share and load from over links; null without one."""
    tiers = result.scenario.tiers
    return next((tier for tier in tiers if tier.scope == "shared" and tier.read), None)


def _ports(
    ident: str, usable: float, fleet: Fleet, deployment: Deployment
) -> tuple[float | None, float | None]:
    """What the ports of a link give, and what else limits it."""
    if ident.startswith(_NIC):
        return usable, None
    if ident.startswith(_POOL_NIC):
        cap = fleet.pool_nodes.value * fleet.pool_dram_bytes_per_s.value
        nics = fleet.pool_nodes.value * fleet.pool_nics_per_node.value
        return max(usable, nics * fleet.pool_nic_bytes_per_s.value if usable >= cap else 0.0), cap
    if ident == _PEERS:
        cap = fleet.gpu_nodes * deployment.hardware.dram_read_bytes_per_s.value
        return usable, max(cap, usable)
    return None, None


def _peaks(budget: Table | None, option_id: str) -> dict[str, float]:
    """P99 minute over the mean, by link, from the link budget of the option."""
    if budget is None:
        return {}
    at = {name: place for place, name in enumerate(budget.columns)}
    found = {}
    for row in budget.rows:
        mean, p99 = row[at["mean_bytes_per_s"]], row[at["p99_bytes_per_s"]]
        if row[at["option_id"]] == option_id and isinstance(mean, float) and mean > 0.0:
            found[str(row[at["link_id"]])] = p99 / mean if isinstance(p99, float) else 1.0
    return found


def in_dtypes(deployment: Deployment, names: Sequence[str]) -> list[Deployment]:
    """The same service with its KV in other formats; those that the LLM cannot have are left out.

    HBM keeps its bytes, whatever tokens a start-up log told.
    """
    found = []
    for name in names:
        try:
            found.append(replace(deployment, kv_dtype=name, measured_kv_tokens=None))
        except KvtraceError:
            continue
    return found


def weighed_hit(
    trace: RequestTrace | None, deployment: Deployment, formats: Sequence[Deployment]
) -> WhatIfHit | None:
    """The median request with reuse, as in the break-even bandwidth; null without FLOPs."""
    if not knows_flops(deployment):
        return None
    known = typical_hit(trace)
    hit = known or EXAMPLE
    built = _hit(deployment, hit.prompt_tokens - hit.cached_tokens, hit.cached_tokens)
    return WhatIfHit(
        prompt_tokens=hit.prompt_tokens,
        cached_tokens=hit.cached_tokens,
        is_example=known is None,
        recompute_s=built[0],
        kv_bytes=[float(one.kv_bytes(built[1])) for one in formats],
    )


def _hit(deployment: Deployment, new_tokens: int, cached: int) -> tuple[float, int]:
    """Seconds of recomputing it, and the tokens of it that are reusable."""
    hit = build_hit(deployment, tokens=new_tokens + cached, cached_tokens=cached)
    return hit.recompute_s, hit.reusable_tokens


def hits_by_length(
    hit: WhatIfHit | None, deployment: Deployment, formats: Sequence[Deployment]
) -> WhatIfLengths | None:
    """Hits of 16 to 131 072 tokens, four lengths an octave."""
    if hit is None:
        return None
    new_tokens = hit.prompt_tokens - hit.cached_tokens
    steps = (2.0 ** (octave + part / _PER_OCTAVE) for octave in _OCTAVES for part in range(4))
    lengths = [round(step) for step in steps if step <= 2.0 ** _OCTAVES[-1]]
    rows = [_hit(deployment, new_tokens, cached) for cached in lengths]
    return WhatIfLengths(
        new_tokens=new_tokens,
        cached_tokens=lengths,
        recompute_s=[seconds for seconds, _ in rows],
        kv_bytes=[[float(one.kv_bytes(kept)) for _, kept in rows] for one in formats],
    )


def add_buckets(model: WhatIfModel, trace: RequestTrace, result: ReplayResult) -> None:
    """The replay's loads by prompt length, and what they took over the formula at the base."""
    timeline = result.timeline
    below = [tokens for tier, tokens in timeline.hit_tokens.items() if tier != "hbm"]
    loaded = sum(below, start=np.zeros(trace.requests, dtype=np.int64)) > 0
    _, exponents = np.frexp(trace.prompt_tokens.astype(np.float64))
    lower = np.left_shift(1, np.maximum(exponents - 1, 0).astype(np.int64))
    move_s, uses = move_seconds(result), evaluate(model).links
    rates = [use.usable_bytes_per_s for use in uses]
    for bucket in np.unique(lower[loaded]).tolist():
        inside = loaded & (lower == bucket)
        count = int(inside.sum())

        def mean(values: np.ndarray, of: np.ndarray = inside, hits: int = count) -> float:
            return math.fsum(values[of].tolist()) / hits

        size, took = mean(timeline.moved_bytes), mean(move_s)
        alone = moves_alone(size, model, rates, uses)
        if not alone:
            continue
        model.buckets.append(
            WhatIfBucket(
                prompt_bucket=bucket,
                hits=count,
                moved_bytes=size,
                recompute_s=mean(timeline.recompute_hit_s),
                move_s=took,
                residual=took / alone,
            )
        )
