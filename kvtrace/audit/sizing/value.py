"""How the worth of a reused token is worked out."""

from __future__ import annotations

import math

import numpy as np

from kvtrace.audit.bounds import knows_flops, spared_s_per_request
from kvtrace.audit.money.gpu_worth import gpu_worth
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.thresholds import (
    FLEET_BUSY_SHARE,
    FLEET_BUSY_SHARE_HIGH,
    FLEET_BUSY_SHARE_LOW,
    MIN_SPAN,
)
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.units import HOURS_PER_MONTH, S_PER_HOUR

BUSY_SHARE = Range(FLEET_BUSY_SHARE_LOW.value, FLEET_BUSY_SHARE.value, FLEET_BUSY_SHARE_HIGH.value)
"""Part of its time for which a fleet is kept busy: a freed second is worth 1 / share of a paid one,
as in `freed_instances`."""


def freed_gpu_usd_per_s(fleet: Fleet) -> Range | None:
    """USD of one GPU-second that is given back, by contract; null: giving it back saves nothing.

    Formula: worth of an instance a month / (its GPUs x seconds of a month).
    """
    worth = gpu_worth(fleet)
    if worth.paid_until is not None:
        return None
    gpu_seconds = fleet.gpus_per_instance * HOURS_PER_MONTH * S_PER_HOUR
    return worth.instance_usd_per_month.scaled(1.0 / gpu_seconds)


def reuse_value(
    trace: RequestTrace | None, deployment: Deployment, fleet: Fleet
) -> ReuseValue | None:
    """Worth of the mean reusable token of `trace`; null without prompts or without known FLOPs.

    Formula: Σ (T(n | 0) - T(n - r | r)) x GPUs / Σ r, T(new | cached) the prefill time of one
    instance, n prompt and r reusable tokens of a request in an unlimited cache; USD: that x worth
    of a GPU-second given back / busy share. Where no reuse is known, r is all of a prompt but its
    last token.
    Assumes: hits are like the trace's own reuse in length and depth; moves hold no GPU.
    """
    if trace is None or not knows_flops(deployment):
        return None
    reusable = _reusable(trace)
    is_reuse = bool(reusable.any())
    reused = reusable if is_reuse else np.maximum(trace.prompt_tokens - 1, 0)
    tokens = int(reused.sum())
    if tokens == 0:
        return None
    nothing = np.zeros_like(reused)
    spared = spared_s_per_request(trace, nothing, reused, deployment.prefill)
    gpu_s = math.fsum(spared.tolist()) * fleet.gpus_per_instance / tokens
    each, usd = prefill_factor(deployment).scaled(gpu_s), freed_gpu_usd_per_s(fleet)
    return ReuseValue(
        gpu_s_per_token=each,
        usd_per_token=None if usd is None else each * usd / BUSY_SHARE,
        tokens=tokens,
        is_of_reuse=is_reuse,
    )


def _reusable(trace: RequestTrace) -> IntArray:
    """(requests,) tokens; the last one of a prompt is computed."""
    if not trace.distinct_blocks:
        return np.zeros(trace.requests, dtype=np.int64)
    return np.minimum(reusable_tokens(trace), np.maximum(trace.prompt_tokens - 1, 0))


def windows_per_month(span_s: float | None) -> float | None:
    """How often a trace of this span fits into a month; null where it is too short for one."""
    if span_s is None or span_s < MIN_SPAN.value:
        return None
    return HOURS_PER_MONTH * S_PER_HOUR / span_s
