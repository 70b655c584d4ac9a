"""What a system measured of its own requests and moves, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_NS: Final = 1e-9
_US: Final = 1e-6


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Requests in order of arrival; all arrays are (requests,), NaN where nothing is known."""

    arrived_s: Floats
    prompt_tokens: Floats
    cached_tokens: Floats
    """Prompt tokens that a cache served."""
    output_tokens: Floats
    queue_s: Floats
    """Arrival to the first step."""
    prefill_s: Floats
    """First step to first token."""
    ttft_s: Floats
    """To the first token, from the arrival (or the first step, see `is_ttft_of_prefill`)."""
    tpot_s: Floats
    e2e_s: Floats
    is_ttft_of_prefill: Bools
    """The TTFT begins where the engine takes the request up, so that no queue is in it."""

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.arrived_s)

    def taken(self, index: NDArray[np.int64] | Bools) -> RequestTimes:
        """These requests alone."""
        return replace(self, **{one.name: getattr(self, one.name)[index] for one in fields(self)})


@dataclass(frozen=True, slots=True)
class MoveTimes:
    """Observed moves of KV on one path; all arrays are (moves,), NaN where nothing is known."""

    path: str
    """As the logs say it, such as host>device."""
    started_s: Floats
    moved_bytes: Floats
    seconds: Floats
    ranks: Floats
    """Ranks that the row pools."""


def spent_prefill_s(times: RequestTimes) -> Floats:
    """(requests,) seconds from the first step to the first token; NaN where it cannot be told.

    The stated prefill; else a TTFT that begins at the first step; else TTFT less queue.
    """
    scheduled = np.where(times.is_ttft_of_prefill, times.ttft_s, times.ttft_s - times.queue_s)
    return _known(np.where(np.isfinite(times.prefill_s), times.prefill_s, scheduled))


def decode_seconds(times: RequestTimes) -> Floats:
    """(requests,) seconds from the first token to the last one; NaN where it cannot be told."""
    steps = times.output_tokens - 1.0
    stated = times.tpot_s * steps
    rest = np.where(times.is_ttft_of_prefill, np.nan, times.e2e_s - times.ttft_s)
    return _known(np.where(np.isfinite(stated), stated, rest))


def clock_step_s(seconds: Floats, *instants: Floats) -> float | None:
    """Largest step of which all these durations are multiples, in seconds; null without any.

    Durations that are all alike, as of a load test with one output length, say nothing of a clock:
    the step is then the largest one that leads from one of the `instants`, where the durations
    begin and end, to all others as well; null where they are of one instant or not known.
    Durations are taken to whole nanoseconds, instants to whole microseconds.
    """
    known = seconds[np.isfinite(seconds) & (seconds > 0)]
    if not len(known):
        return None
    steps = np.rint(known / _NS).astype(np.int64)
    if len(np.unique(steps)) > 1:
        return float(np.gcd.reduce(steps) * _NS)
    at = np.concatenate([one[np.isfinite(one)] for one in instants]) if instants else known[:0]
    ticks = np.unique(np.rint(at / _US).astype(np.int64))
    return float(np.gcd.reduce(np.diff(ticks)) * _US) if len(ticks) > 1 else None


def _known(seconds: Floats) -> Floats:
    """NaN for what is not above zero: a duration of nothing was not measured."""
    return np.where(seconds > 0, seconds, np.nan)
