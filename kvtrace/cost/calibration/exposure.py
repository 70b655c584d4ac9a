"""What an engine did while a request prefilled or decoded, from the times of all requests.

A request prefills from its first step to its first token, its tokens spread evenly over that time,
and then decodes one token per step until its last. What a request shared its steps with follows
from the intervals of the others: integrals of piecewise linear functions, exact at their corners.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.cost.calibration.observations import (
    Floats,
    RequestTimes,
    decode_seconds,
    spent_prefill_s,
)


@dataclass(frozen=True, slots=True)
class Timeline:
    """(requests,) instants in seconds; NaN where they cannot be told."""

    start_s: Floats
    """First step."""
    first_s: Floats
    """First token."""
    end_s: Floats
    """Last token."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Means over one interval of each request; (requests,)."""

    seconds: Floats
    batch: Floats
    """Requests that decode."""
    context_tokens: Floats
    """Tokens of KV that they hold, all together."""


def timeline_of(times: RequestTimes) -> Timeline:
    """When each request began, had its first token, and ended.

    A request whose queue is not stated began its TTFT's prefill part before its first token.
    """
    prefill = spent_prefill_s(times)
    start = times.arrived_s + np.where(
        times.is_ttft_of_prefill | ~np.isfinite(times.queue_s), 0.0, times.queue_s
    )
    from_arrival = times.arrived_s + times.ttft_s
    first = np.where(
        np.isfinite(times.ttft_s) & ~times.is_ttft_of_prefill, from_arrival, start + prefill
    )
    first = np.where(np.isfinite(first), first, start + prefill)
    start = np.where(np.isfinite(prefill), first - prefill, np.nan)
    return Timeline(start, first, first + decode_seconds(times))


def spread_between(
    start_s: Floats, end_s: Floats, amount: Floats, since: Floats, until: Floats
) -> Floats:
    """(requests,) of all amounts, spread evenly over their intervals, what falls into each window.

    Requests without an interval or amount put nothing anywhere; a window that is not known is NaN.
    """
    known = np.isfinite(start_s) & np.isfinite(end_s) & np.isfinite(amount) & (end_s > start_s)
    if not known.any():
        return np.where(np.isfinite(since) & np.isfinite(until), 0.0, np.nan)
    slope = amount[known] / (end_s[known] - start_s[known])
    at, total = _integral(
        np.concatenate((start_s[known], end_s[known])), np.concatenate((slope, -slope))
    )
    return np.asarray(np.interp(until, at, total) - np.interp(since, at, total))


def decoding_between(
    timeline: Timeline, times: RequestTimes, since: Floats, until: Floats
) -> Exposure:
    """Mean batch and mean tokens of KV of the decoding requests over each window."""
    seconds = until - since
    first, end = timeline.first_s, timeline.end_s
    known = np.isfinite(first) & np.isfinite(end) & (end > first)
    width = np.where(known, end - first, np.nan)
    batch = spread_between(first, end, width, since, until) / seconds
    held = spread_between(first, end, width * times.prompt_tokens, since, until)
    grown = _grown_between(first[known], end[known], times.output_tokens[known], since, until)
    return Exposure(seconds, batch, (held + grown) / seconds)


def _grown_between(
    first: Floats, end: Floats, output: Floats, since: Floats, until: Floats
) -> Floats:
    """Integral over each window of the tokens that the decoding requests have generated."""
    if not len(first):
        return np.zeros_like(since)
    rate = output / (end - first)
    at = np.unique(
        np.concatenate((first, end, since[np.isfinite(since)], until[np.isfinite(until)]))
    )
    slope = np.zeros(len(at))
    jump = np.zeros(len(at))
    np.add.at(slope, np.searchsorted(at, first), rate)
    np.add.at(slope, np.searchsorted(at, end), -rate)
    np.add.at(jump, np.searchsorted(at, end), -output)
    gaps = np.diff(at)
    slopes = np.cumsum(slope)[:-1]
    before = np.concatenate(([0.0], np.cumsum(slopes * gaps))) + np.cumsum(jump)
    area = np.concatenate(([0.0], np.cumsum(before[:-1] * gaps + slopes * gaps * gaps / 2)))
    return np.asarray(np.interp(until, at, area) - np.interp(since, at, area))


def _integral(at: Floats, change: Floats) -> tuple[Floats, Floats]:
    """Corners of the integral of a step function with these changes, and its values there."""
    order = np.argsort(at, kind="stable")
    at, change = at[order], change[order]
    level = np.cumsum(change)[:-1]
    return at, np.concatenate(([0.0], np.cumsum(level * np.diff(at))))
