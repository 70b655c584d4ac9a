"""How many requests ran and waited at given times of a replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Occupancy:
    """(instants,) requests over all instances."""

    running: IntArray
    """First step begun, not ended, and not preempted."""
    waiting: IntArray
    """Arrived and not begun (loads included), or preempted."""


def occupancy(result: ReplayResult, arrived_s: FloatArray, at_s: FloatArray) -> Occupancy:
    """The requests of a replay at each instant; `arrived_s` is (requests,), on the same clock.

    Of the replayed requests alone, and only where output lengths are known.
    """
    timeline = result.timeline
    begun = arrived_s + timeline.ttft_s - timeline.prefill_s
    ended = arrived_s + timeline.e2e_s
    away = _between(
        np.array([one[1] for one in result.preempted], dtype=np.float64),
        np.array([one[2] for one in result.preempted], dtype=np.float64),
        at_s,
    )
    return Occupancy(
        running=_between(begun, ended, at_s) - away,
        waiting=_between(arrived_s, begun, at_s) + away,
    )


def _between(since: FloatArray, until: FloatArray, at_s: FloatArray) -> IntArray:
    """(instants,) intervals [since, until) that hold each instant."""
    opened = np.searchsorted(np.sort(since), at_s, side="right")
    closed = np.searchsorted(np.sort(until), at_s, side="right")
    return np.asarray(opened - closed, dtype=np.int64)
