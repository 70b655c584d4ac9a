"""Delays and failures of one tier, drawn for each request by its place in the trace.

What a request meets depends on the seed, the tier and its own row alone, not on what happens in
the replay: two options of one seed have the same luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p
from typing import Final

import numpy as np

from kvtrace.replay.scenario import TierSpec
from kvtrace.schema.arrays import FloatArray

_LN_100: Final = log(100.0)
"""An exponential delay of mean 1 is below this in 99 of 100 cases."""


@dataclass(frozen=True, slots=True)
class Tails:
    """Per request of the replay, for one tier."""

    lookup_s: list[float]
    """Of each lookup; a failed one takes the time-out, if there is one."""
    delay_s: list[float]
    """Before a load begins."""
    lookup_fails: list[bool]
    read_fails: list[bool]


def draw_tails(spec: TierSpec, index: int, *, seed: int, first: int, requests: int) -> Tails | None:
    """The luck of the `requests` from row `first` of the trace on; None: nothing is left to it.

    Formula: delay = p99 excess · -ln(1 - u) / ln 100, u uniform: an exponential of that P99.
    """
    excess_s = 0.0 if spec.lookup_p99_s is None else spec.lookup_p99_s - spec.lookup_s
    shares = (spec.lookup_failure_share, spec.read_failure_share)
    if not (excess_s or spec.read_delay_p99_s or any(shares)):
        return None
    rows = np.random.Generator(np.random.PCG64([seed, index])).random((first + requests, 4))
    asked, delayed, unanswered, unread = rows[first:].T
    lookup_s = spec.lookup_s + np.array(_delay_s(asked, excess_s))
    fails = unanswered < spec.lookup_failure_share
    if spec.timeout_s is not None:
        fails |= lookup_s > spec.timeout_s
        lookup_s = np.where(fails, spec.timeout_s, lookup_s)
    return Tails(
        lookup_s=lookup_s.tolist(),
        delay_s=_delay_s(delayed, spec.read_delay_p99_s),
        lookup_fails=fails.tolist(),
        read_fails=(unread < spec.read_failure_share).tolist(),
    )


def _delay_s(uniform: FloatArray, p99_s: float) -> list[float]:
    return [-log1p(-value) * (p99_s / _LN_100) for value in uniform.tolist()]
