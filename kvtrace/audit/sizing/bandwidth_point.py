"""The effective bandwidth per GPU above which a hit is worth moving: B* of each path."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kvtrace.audit.bounds import knows_flops
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.sizing.record import BreakEvenPath
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.ledger import build_ledger
from kvtrace.cost.tier_paths import LEDGER_PATHS, find_path, path_title
from kvtrace.cost.ways import break_even_bytes_per_s
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.schema.arrays import IntArray, RequestTrace

_SOURCE: Final = (
    "cost ledger: bytes / (recompute - fixed seconds of the path), over the GPUs of an instance; "
    "low and high: prefill at the ends of the GEMM efficiency"
)


class TypicalHit(NamedTuple):
    """The median request with reuse: its prompt, and what of it is reusable."""

    prompt_tokens: int
    cached_tokens: int


def typical_hit(trace: RequestTrace | None) -> TypicalHit | None:
    """Medians over the requests with reuse (lower ones of an even number); null without any."""
    if trace is None or not trace.distinct_blocks:
        return None
    cached = np.minimum(reusable_tokens(trace), np.maximum(trace.prompt_tokens - 1, 0))
    hits = cached > 0
    if not hits.any():
        return None
    prompt, reused = (_lower_median(values[hits]) for values in (trace.prompt_tokens, cached))
    return TypicalHit(prompt, min(reused, prompt - 1))


def _lower_median(values: IntArray) -> int:
    return int(np.sort(values)[(len(values) - 1) // 2])


def break_even_paths(hit: TypicalHit | None, deployment: Deployment) -> list[BreakEvenPath]:
    """One entry per path that the ledger compares; none without a hit or without FLOPs."""
    if hit is None or not knows_flops(deployment):
        return []
    return [_path(hit, deployment, path_id) for path_id in LEDGER_PATHS]


def _path(hit: TypicalHit, deployment: Deployment, path_id: str) -> BreakEvenPath:
    ledger = build_ledger(
        deployment,
        tokens=hit.prompt_tokens,
        cached_tokens=hit.cached_tokens,
        paths=(find_path(deployment, path_id),),
        depth="figures",
    )
    told, gpus = ledger.path(path_id), deployment.kv_ranks
    recompute = prefill_factor(deployment).scaled(ledger.recompute_s)
    # A dear recompute makes a slow path good enough: the low rate goes with the high recompute.
    rates = [
        break_even_bytes_per_s(
            kv_bytes=ledger.kv_bytes / gpus, recompute_s=seconds, fixed_s=told.fixed_s
        )
        for seconds in (recompute.high, recompute.value, recompute.low)
    ]
    return BreakEvenPath(
        path=path_id,
        title=path_title(deployment, path_id),
        needed=_quantity(path_id, rates),
        given_bytes_per_s=told.path_bytes_per_s / gpus,
        prompt_tokens=hit.prompt_tokens,
        cached_tokens=hit.cached_tokens,
        move_s=told.move_s,
        recompute_s=ledger.recompute_s,
    )


def _quantity(path_id: str, rates: list[float | None]) -> Quantity | None:
    low, value, high = rates
    if value is None:
        return None
    return Quantity(
        id=f"break_even_bandwidth:{path_id}",
        value=value,
        low=low if high is not None else None,
        high=high,
        unit="bytes/s",
        title="bandwidth per GPU above which the median hit is worth moving",
        source=_SOURCE,
        kind="modelled",
        interval_reason="" if high is not None else "at the fastest prefill no rate is enough",
    )
