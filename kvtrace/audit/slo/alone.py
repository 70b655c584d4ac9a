"""A replay as an empty fleet would have it: each request alone, which no fleet can better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray, RequestTrace


def on_an_empty_fleet(trace: RequestTrace, result: ReplayResult) -> ReplayResult:
    """`result`, a replay of `trace`, with the times of requests that nobody shares anything with.

    Formula: TTFT as in `floor_s`; TPOT one decode step of a batch of one, at the prompt and half of
    the output, or as replayed where that was shorter; E2E the one, and the other for each output
    token after the first.
    """
    ttft_s, decode = floor_s(result), result.scenario.decode
    context = trace.prompt_tokens + trace.output_tokens / 2
    step_s = np.array([decode.step_s(1, tokens) for tokens in context.tolist()])
    tpot_s = np.where(
        np.isnan(result.timeline.tpot_s), np.nan, np.fmin(result.timeline.tpot_s, step_s)
    )
    decode_s = np.nan_to_num(tpot_s) * np.maximum(trace.output_tokens - 1, 0)
    timeline = replace(
        result.timeline,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=np.fmin(result.timeline.e2e_s, ttft_s + decode_s),
    )
    return replace(result, timeline=timeline, is_overloaded=False, offered_load=None)


def floor_s(result: ReplayResult) -> FloatArray:
    """(requests,) TTFT that an empty fleet gives: its lookup, its move and its prefill, alone.

    Formula: lookup + Σ stages (latency + bytes / rate of the slowest link of the stage) + prefill
    of what was computed, after what was found; the move as replayed where that was shorter.
    Assumes: hits as replayed; on more instances private caches are more and hit no more.
    """
    timeline, prefill = result.timeline, result.scenario.prefill
    found = sum(timeline.hit_tokens.values(), start=np.zeros(len(timeline.ttft_s), dtype=np.int64))
    computed_s = [
        prefill.prefill_s(new, held) if new > 0 else 0.0
        for new, held in zip(timeline.computed_tokens.tolist(), found.tolist(), strict=True)
    ]
    move_s = np.minimum(_move_alone_s(result), timeline.pull_s + timeline.load_s)
    alone = timeline.lookup_s + move_s + np.array(computed_s, dtype=np.float64)
    return np.asarray(alone, dtype=np.float64)


def _move_alone_s(result: ReplayResult) -> FloatArray:
    """(requests,) stages of each tier one after the other, nothing else on the links."""
    scenario = result.scenario
    seconds = np.zeros(len(result.timeline.ttft_s), dtype=np.float64)
    for tier in scenario.tiers:
        tokens = result.timeline.hit_tokens[tier.tier_id]
        per_token = tier.stored_bytes_per_token or scenario.kv_bytes_per_token
        for stage in tier.read:
            rates = [scenario.links[link].bytes_per_s for link in stage.link_ids]
            fixed_s = np.where(tokens > 0, stage.latency_s, 0.0)
            seconds += fixed_s + (tokens * per_token / min(rates) if rates else 0.0)
    return seconds
