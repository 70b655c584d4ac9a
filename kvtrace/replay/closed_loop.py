"""Sessions that wait for their answers: a turn comes its think time after the turn before it ended.

In the open loop requests arrive when they were logged, however slow the fleet is. In the closed
loop only the first turn of a session does (and a turn whose predecessor came before the replay);
each later one follows its predecessor's last token. A slow fleet then gets fewer requests an hour,
not an ever longer queue. Requests that wait at one time are taken in the order of the log.
"""

from __future__ import annotations

import numpy as np

from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.units import NS_PER_S


def turns_before(trace: RequestTrace) -> IntArray:
    """(requests,) the request before in the same session, -1 where there is none."""
    session = trace.session
    before = np.full(trace.requests, -1, dtype=np.int64)
    named = np.flatnonzero(session >= 0)
    order = named[np.argsort(session[named], kind="stable")]
    is_same = session[order[1:]] == session[order[:-1]]
    before[order[1:][is_same]] = order[:-1][is_same]
    return before


def think_seconds(trace: RequestTrace, e2e_s: FloatArray) -> FloatArray:
    """(requests,) logged seconds from the end of the turn before to this arrival; NaN: no turn.

    Formula: max(0, arrival - arrival of the turn before - its `e2e_s`). Where that is not known
    (NaN), the turn before is taken to have ended at once: the think time is then an upper bound.
    """
    before = turns_before(trace)
    gap_s = (trace.arrived_at_ns - trace.arrived_at_ns[before]) / NS_PER_S
    think_s = np.maximum(0.0, gap_s - np.nan_to_num(e2e_s[before], nan=0.0))
    return np.asarray(np.where(before >= 0, think_s, np.nan), dtype=np.float64)


class ClosedLoop:
    """Which turn follows which; give it to `simulate` and read `arrived_s` afterwards.

    `think_s` is (requests of the trace,) long; so many of them only warm the caches as `first`.
    """

    __slots__ = ("after", "arrived_s", "openers", "think_s")

    def __init__(self, trace: RequestTrace, think_s: FloatArray, *, first: int = 0) -> None:
        before = turns_before(trace)[first:] - first
        self.after = [-1] * len(before)
        """(replayed requests,) the turn that waits for this one, -1: none."""
        for turn, earlier in enumerate(before.tolist()):
            if earlier >= 0:
                self.after[earlier] = turn
        self.openers: list[int] = np.flatnonzero(before < 0).tolist()
        """Replayed requests that come when they were logged, in order."""
        self.think_s: list[float] = think_s[first:].tolist()
        self.arrived_s: list[float] = []
        """(replayed requests,) when each came, on the clock of the trace; filled by the replay."""
