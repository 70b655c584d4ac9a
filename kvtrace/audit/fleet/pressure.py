"""How much of each resource one replay uses."""

from __future__ import annotations

import math

import numpy as np

from kvtrace.audit.window import arrival_span_s
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import gpu_seconds
from kvtrace.schema.arrays import RequestTrace


def used_shares(trace: RequestTrace, result: ReplayResult) -> dict[str, float]:
    """By resource: the share of it that the replay of `trace` uses, 0..1 and above.

    Formula, over instances x the span of the arrivals:
        prefill: seconds that prefill adds to steps
        decode: offered load less that, which is the output tokens at the fullest batch
        hbm_capacity: tokens of prompt and output x bytes x seconds that a request holds them, over
            the HBM for KV
        link:<id>: bytes over what the links could have moved
    Assumes: a request holds its room from the end of its queue to its last token. Empty where all
    requests arrive at once.
    """
    span_s = arrival_span_s(trace)
    if not span_s:
        return {}
    scenario = result.scenario
    instance_s = scenario.instances * span_s
    shares = {"prefill": gpu_seconds(result) / instance_s}
    if result.offered_load is not None and math.isfinite(result.offered_load):
        shares["decode"] = max(0.0, result.offered_load - shares["prefill"])
    held = _held_token_s(trace, result) * scenario.kv_bytes_per_token
    if scenario.hbm_capacity_bytes > 0:
        shares["hbm_capacity"] = held / (scenario.hbm_capacity_bytes * instance_s)
    return shares | {f"link:{use.link_id}": use.utilisation for use in result.link_use}


def _held_token_s(trace: RequestTrace, result: ReplayResult) -> float:
    timeline = result.timeline
    last_s = np.where(np.isnan(timeline.e2e_s), timeline.ttft_s, timeline.e2e_s)
    seconds = np.maximum(last_s - timeline.queue_s, 0.0)
    tokens = (trace.prompt_tokens + trace.output_tokens).astype(np.float64)
    return math.fsum((seconds * tokens).tolist())


def busiest(shares: dict[str, float]) -> list[str]:
    """The resources, the busiest first (ties: by name)."""
    return sorted(shares, key=lambda name: (-shares[name], name))
