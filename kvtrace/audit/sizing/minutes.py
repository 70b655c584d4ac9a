"""What arrives in each minute of the replayed window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.audit.window import arrival_span_s
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.units import NS_PER_S

MINUTE_S: Final = 60
"""A queue of minutes is felt, one of milliseconds is not: shorter bursts are in the replay's own
queues."""


@dataclass(frozen=True, slots=True)
class Window:
    """The minutes of a replayed window."""

    minute: IntArray
    """(requests,) from 0."""
    minutes: int
    span_s: float
    """First to last arrival."""


def minutes_of(trace: RequestTrace | None) -> Window | None:
    """The minutes from the first arrival to the last; null without a clock or a span."""
    span_s = None if trace is None else arrival_span_s(trace)
    if trace is None or not span_s:
        return None
    since = trace.arrived_at_ns - trace.arrived_at_ns[0]
    minute = since // (MINUTE_S * NS_PER_S)
    return Window(minute=minute, minutes=int(minute[-1]) + 1, span_s=span_s)


def per_minute(window: Window, amounts: FloatArray) -> FloatArray:
    """(minutes,) sums of what belongs to the requests of each minute; empty ones are 0."""
    sums = np.bincount(window.minute, weights=amounts, minlength=window.minutes)
    return np.asarray(sums, dtype=np.float64)


def peak_in_flight(start_s: FloatArray, seconds: FloatArray, size: FloatArray) -> float:
    """Most of `size` that is under way at one moment: each from its start for its seconds.

    What ends at a moment makes room for what begins at it.
    """
    kept = (seconds > 0.0) & (size > 0.0)
    starts, sizes = start_s[kept], size[kept]
    at = np.concatenate((starts + seconds[kept], starts))
    change = np.concatenate((-sizes, sizes))
    order = np.argsort(at, kind="stable")
    return float(np.cumsum(change[order]).max(initial=0.0))
