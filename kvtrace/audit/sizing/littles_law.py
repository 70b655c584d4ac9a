"""Little's law: what is in flight at once (rate x time), against what there is room for.

Source: Little, A Proof for the Queuing Formula L = λ W, Operations Research 9 (1961).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from kvtrace.audit.record import Cell, Table
from kvtrace.audit.sizing.minutes import Window, peak_in_flight
from kvtrace.audit.tables.shape import TableShape
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import BoolArray, FloatArray, RequestTrace
from kvtrace.units import NS_PER_S

LITTLE_TABLE: Final = "sizing/littles_law"
_SHAPE: Final = TableShape(
    LITTLE_TABLE,
    "What is in flight at once, by Little's law (modelled)",
    (
        ("option_id", "name", "the option"),
        (
            "what",
            "name",
            "loads: requests whose KV is being loaded; kv_of_loads: HBM that they add meanwhile; "
            "prefills: requests that prefill, several a step; kv_of_decodes: HBM that decoding "
            "requests add (prompt beyond what HBM held, half of the output)",
        ),
        ("rate_per_s", "`unit_per_s`", "that begin in a second, mean of the window"),
        ("mean_s", "s", "that each lasts, weighted by its size"),
        ("in_flight", "`unit`", "rate_per_s x mean_s"),
        (
            "peak_in_flight",
            "`unit`",
            "at the moment with most; loads begin after the queue",
        ),
        ("room", "`unit`", "that there is room for; null: no limit of its own"),
        ("peak_over_room", "ratio", "peak_in_flight / room"),
        ("is_within", "flag", "the moment with most has room"),
        ("unit", "name", "of what is in flight"),
        ("unit_per_s", "name", "of the rate"),
    ),
)


class _Flow(NamedTuple):
    """One kind of thing in flight."""

    what: str
    unit: str
    size: FloatArray
    """(requests,) of each; 0: none of it."""
    start_s: FloatArray
    seconds: FloatArray
    room: float | None


def littles_law(
    results: Sequence[ReplayResult], trace: RequestTrace | None, window: Window | None
) -> Table | None:
    """One row per option and kind of flow; null without a clock."""
    if trace is None or window is None:
        return None
    rows = [
        _row(result.scenario.option_id, flow, window)
        for result in results
        for flow in _flows(result, trace)
    ]
    return _SHAPE.table(rows) if rows else None


def _flows(result: ReplayResult, trace: RequestTrace) -> Iterator[_Flow]:
    scenario, timeline = result.scenario, result.timeline
    hbm, token = scenario.instances * scenario.hbm_capacity_bytes, scenario.kv_bytes_per_token
    arrived_s = trace.arrived_at_ns / NS_PER_S
    scheduled_s = arrived_s + timeline.queue_s
    own_tokens = trace.prompt_tokens - timeline.hit_tokens.get("hbm", 0)
    own_bytes = own_tokens.astype(np.float64) * token
    ones = np.ones(trace.requests)
    if scenario.tiers:
        loaded = timeline.moved_bytes > 0.0
        move_s = move_seconds(result)
        yield _Flow("loads", "requests", _where(loaded, ones), scheduled_s, move_s, None)
        held = _where(loaded, own_bytes)
        yield _Flow("kv_of_loads", "bytes", held, scheduled_s, move_s, hbm)
    yield _Flow("prefills", "requests", ones, scheduled_s, timeline.prefill_s, None)
    decode_s = timeline.e2e_s - timeline.ttft_s
    known = np.isfinite(decode_s)
    grown = own_bytes + np.maximum(trace.output_tokens, 0).astype(np.float64) * token / 2
    first_token_s = arrived_s + timeline.ttft_s
    yield _Flow(
        "kv_of_decodes",
        "bytes",
        _where(known, grown),
        first_token_s,
        np.where(known, decode_s, 0.0),
        hbm,
    )


def _where(is_kept: BoolArray, values: FloatArray) -> FloatArray:
    return np.where(is_kept, values, 0.0)


def _row(option_id: str, flow: _Flow, window: Window) -> list[Cell]:
    size = math.fsum(flow.size.tolist())
    held = flow.size * flow.seconds
    in_flight = math.fsum(held.tolist()) / window.span_s
    peak = peak_in_flight(flow.start_s, flow.seconds, flow.size)
    over = None if not flow.room else peak / flow.room
    return [
        option_id,
        flow.what,
        size / window.span_s,
        in_flight * window.span_s / size if size else None,
        in_flight,
        peak,
        flow.room,
        over,
        None if over is None else over <= 1.0,
        flow.unit,
        f"{flow.unit}/s",
    ]
