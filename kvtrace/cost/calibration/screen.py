"""Which rows can be fitted, and what the data cannot tell whatever a fit would say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kvtrace.cost.calibration.exposure import Timeline
from kvtrace.cost.calibration.observations import (
    Bools,
    Floats,
    RequestTimes,
    clock_step_s,
    decode_seconds,
    spent_prefill_s,
)
from kvtrace.cost.calibration.parameters import DECODE, PREFILL

ENOUGH: Final = 20
"""Requests that a parameter needs at least in the half that is fitted."""
_COARSE: Final = 0.2
"""Step of the clock over the median duration above which the durations say too little."""
_ONE_LENGTH: Final = 1.5
"""Prompts whose 90th percentile is less than so many times their 10th are of one length."""
_ALONE_SHARE: Final = 0.02
"""Share of a TTFT that may overlap with another request's for it to hold no queue."""
_FULL: Final = 0.97
"""Share of the KV capacity above which requests may have been preempted unseen."""


@dataclass(frozen=True, slots=True)
class Screened:
    """(requests,) what may be fitted, and refusals by parameter."""

    prefill: Bools
    decode: Bools
    refused: dict[str, str]
    notes: tuple[str, ...]


def screen(
    times: RequestTimes,
    timeline: Timeline,
    context_tokens: Floats,
    *,
    kv_capacity_tokens: float | None,
) -> Screened:
    """What may be fitted; `context_tokens` is the mean KV that decoded beside each request."""
    refused: dict[str, str] = {}
    notes: list[str] = []
    prefill = _prefills(times, timeline, refused)
    decode = _decodes(times, timeline, context_tokens, kv_capacity_tokens, refused, notes)
    _check_lengths(times, prefill, refused)
    return Screened(prefill, decode, refused, tuple(notes))


def _prefills(times: RequestTimes, timeline: Timeline, refused: dict[str, str]) -> Bools:
    seconds = spent_prefill_s(times)
    known = np.isfinite(seconds) & (times.prompt_tokens > times.cached_tokens)
    known &= np.isfinite(timeline.first_s)
    if known.sum() < ENOUGH:
        _refuse(refused, PREFILL, _why_no_prefill(times))
        return np.zeros(times.requests, dtype=np.bool_)
    step = clock_step_s(seconds[known], timeline.start_s[known], timeline.first_s[known])
    middle = float(np.median(seconds[known]))
    if step is not None and step > _COARSE * middle:
        _refuse(
            refused,
            PREFILL,
            f"the clock steps by {step:.3g} s, and the median prefill takes {middle:.3g} s",
        )
    return known


def lone_queues_as_none(times: RequestTimes) -> tuple[RequestTimes, tuple[str, ...]]:
    """The times with no queue where a request cannot have had one, and a note.

    Only where hardly any request says what of its TTFT was prefill: a request whose TTFT overlaps
    with no other waited for nobody.
    """
    if np.isfinite(spent_prefill_s(times)).sum() >= ENOUGH:
        return times, ()
    alone = _alone(times) & ~np.isfinite(times.queue_s)
    if alone.sum() < ENOUGH:
        return times, ()
    note = (
        f"no queue is stated: of {times.requests:,} requests the {alone.sum():,} are fitted that "
        "overlap with no other before their first token"
    )
    return replace(times, queue_s=np.where(alone, 0.0, times.queue_s)), (note,)


def _alone(times: RequestTimes) -> Bools:
    """Requests with a TTFT from arrival that overlaps with no other TTFT."""
    first = times.arrived_s + times.ttft_s
    known = np.isfinite(first) & np.isfinite(times.prompt_tokens)
    if not known.any():
        return known
    order = np.argsort(np.where(known, times.arrived_s, np.inf), kind="stable")
    order = order[: int(known.sum())]
    begins, ends = times.arrived_s[order], first[order]
    last_end = np.concatenate(([-np.inf], np.maximum.accumulate(ends)[:-1]))
    next_begin = np.concatenate((begins[1:], [np.inf]))
    slack = _ALONE_SHARE * (ends - begins)
    alone = np.zeros(times.requests, dtype=np.bool_)
    alone[order] = (last_end <= begins + slack) & (next_begin >= ends - slack)
    return alone


def _why_no_prefill(times: RequestTimes) -> str:
    if not np.isfinite(times.ttft_s).any() and not np.isfinite(times.prefill_s).any():
        return "no request has a TTFT or a prefill time"
    if not np.isfinite(times.arrived_s).any():
        return "no request has an arrival: what shared its steps cannot be told"
    if not np.isfinite(times.prompt_tokens).any():
        return "no request has a prompt length"
    if np.isfinite(times.queue_s).any():
        return f"fewer than {ENOUGH} requests say what of their TTFT was prefill: it is queue alone"
    return f"TTFTs may hold a queue, and fewer than {ENOUGH} requests overlap with no other"


def _decodes(
    times: RequestTimes,
    timeline: Timeline,
    context_tokens: Floats,
    capacity: float | None,
    refused: dict[str, str],
    notes: list[str],
) -> Bools:
    seconds = decode_seconds(times)
    known = np.isfinite(seconds) & (times.output_tokens > 1) & np.isfinite(context_tokens)
    if known.sum() < ENOUGH:
        _refuse(refused, DECODE, _why_no_decode(times))
        return np.zeros(times.requests, dtype=np.bool_)
    if capacity is not None:
        full = known & (context_tokens > _FULL * capacity)
        known &= ~full
        if full.any():
            notes.append(
                f"{full.sum():,} requests decoded while KV filled HBM, so that some were preempted "
                "unseen: their decode is not fitted"
            )
        if known.sum() < ENOUGH:
            _refuse(
                refused,
                DECODE,
                "KV filled HBM while nearly all requests decoded: their times hold preemptions; "
                "a scenario with the scheduler's settings lets the fit replay them",
            )
    step = clock_step_s(seconds[known], timeline.first_s[known], timeline.end_s[known])
    if step is not None and known.any() and step > _COARSE * float(np.median(seconds[known])):
        _refuse(refused, DECODE, f"the clock steps by {step:.3g} s")
    return known


def _why_no_decode(times: RequestTimes) -> str:
    if not (np.isfinite(times.tpot_s) | np.isfinite(times.e2e_s)).any():
        return "no request has a TPOT or an end"
    if not np.isfinite(times.output_tokens).any():
        return "no request has an output length"
    return f"fewer than {ENOUGH} requests have arrival, first token, end and output length"


def hits_taken_as_none(
    times: RequestTimes, *, prefix_caching: bool | None, assumes_no_hits: bool
) -> tuple[RequestTimes, dict[str, str], tuple[str, ...]]:
    """The times with unknown cached tokens as none, refusals where that may be wrong, and notes.

    `prefix_caching` is what the log says of the engine, null where it does not.
    """
    unknown = ~np.isfinite(times.cached_tokens)
    filled = replace(times, cached_tokens=np.where(unknown, 0.0, times.cached_tokens))
    refused: dict[str, str] = {}
    if not unknown.any() or prefix_caching is False:
        return filled, refused, ()
    if prefix_caching and not assumes_no_hits:
        _refuse(
            refused,
            PREFILL,
            "prefix caching is on and cached tokens are unknown, so that computed tokens are too; "
            "`--assume-no-hits` where prompts share nothing",
        )
        return filled, refused, ()
    return filled, refused, ("cached tokens are unknown: taken as none",)


def _check_lengths(times: RequestTimes, prefill: Bools, refused: dict[str, str]) -> None:
    if "prefill_fixed" in refused or prefill.sum() < ENOUGH:
        return
    low, high = np.quantile(times.prompt_tokens[prefill], [0.1, 0.9]).tolist()
    if high < _ONE_LENGTH * low:
        refused["prefill_fixed"] = (
            f"prompts are of one length ({low:,.0f} to {high:,.0f} tokens): fixed seconds and "
            "seconds per token cannot be told apart"
        )
        refused["prefill_token"] = refused["prefill_fixed"]


def _refuse(refused: dict[str, str], names: tuple[str, ...], reason: str) -> None:
    for name in names:
        refused.setdefault(name, reason)
