"""How many loads may share a pool's ports until the median hit is slower than recomputing it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.sizing.minutes import Window, peak_in_flight
from kvtrace.audit.sizing.record import BreakEvenContention
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario, StageSpec
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import FloatArray, RequestTrace
from kvtrace.units import NS_PER_S


class SharedStage(NamedTuple):
    """The stage of a load that all loads share, and what the load takes besides it."""

    link_id: str
    shared_bytes_per_s: float
    """Of the shared link, whole."""
    own_bytes_per_s: float
    """What one load gets on the stage's other links, alone."""
    other_s_per_byte: float
    """Of the other stages, alone."""
    fixed_s: float
    """Lookup and latencies."""


def shared_stage(scenario: Scenario) -> SharedStage | None:
    """The first shared link on the way of a load from a tier that all share; null without one."""
    tier = next((one for one in scenario.tiers if one.scope == "shared"), None)
    if tier is None:
        return None
    fixed = tier.lookup_s + math.fsum(stage.latency_s for stage in tier.read)
    for stage in tier.read:
        for link_id in stage.link_ids:
            link = scenario.links[link_id]
            if link.scope == "shared":
                others = (other for other in tier.read if other is not stage)
                return SharedStage(
                    link_id,
                    link.bytes_per_s,
                    _own_rate(stage, scenario),
                    math.fsum(1.0 / _own_rate(other, scenario) for other in others),
                    fixed,
                )
    return None


def _own_rate(stage: StageSpec, scenario: Scenario) -> float:
    """Bytes/s of the slowest link that is not shared by the fleet."""
    links = (scenario.links[link_id] for link_id in stage.link_ids)
    return min((link.bytes_per_s for link in links if link.scope == "instance"), default=math.inf)


def flows_until_negative(
    stage: SharedStage, moved_bytes: FloatArray, recompute_s: FloatArray
) -> FloatArray:
    """(hits,) loads at once that share the link up to which the hit is not slower than recomputing.

    Formula: rate needed = bytes / (recompute - fixed - bytes x other stages); flows = shared rate /
    needed; 0 where the load is slower even alone (the stage's own links give less than needed, or
    no time is left).
    Assumes: all flows want as much, so that each gets an equal share of the link.
    """
    spare_s = recompute_s - stage.fixed_s - moved_bytes * stage.other_s_per_byte
    with np.errstate(divide="ignore", over="ignore"):
        needed = np.where(spare_s > 0.0, moved_bytes / np.maximum(spare_s, 1e-300), np.inf)
        flows = np.where(needed > 0.0, stage.shared_bytes_per_s / needed, np.inf)
    is_possible = (needed <= stage.own_bytes_per_s) & (flows >= 1.0)
    return np.where(is_possible, flows, 0.0)


def break_even_contention(
    results: Sequence[ReplayResult], trace: RequestTrace | None, window: Window | None
) -> list[BreakEvenContention]:
    """One entry per replayed pool with a link that all loads share."""
    if trace is None or window is None:
        return []
    found = []
    for result in results:
        stage = shared_stage(result.scenario)
        if stage is None or not is_pool(result.scenario.option_id):
            continue
        timeline = result.timeline
        loaded = timeline.moved_bytes > 0.0
        start_s = trace.arrived_at_ns / NS_PER_S + timeline.queue_s
        seconds = np.where(loaded, move_seconds(result), 0.0)
        flows = flows_until_negative(
            stage, timeline.moved_bytes[loaded], timeline.recompute_hit_s[loaded]
        )
        found.append(
            BreakEvenContention(
                option=result.scenario.option_id,
                title=result.scenario.title,
                link=stage.link_id,
                flows=_whole(float(np.median(flows))) if len(flows) else None,
                mean_in_flight=math.fsum(seconds.tolist()) / window.span_s,
                peak_in_flight=peak_in_flight(start_s, seconds, loaded.astype(np.float64)),
            )
        )
    return found


def _whole(flows: float) -> int | None:
    return math.floor(flows) if math.isfinite(flows) else None
