"""Block bootstrap: whole sessions drawn again, so that turns of one stay together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace

Unit = Literal["sessions", "conversations", "time_blocks"]
REPLICATES: Final = 400
"""Draws of all sessions: 40 lie beyond the 10th percentile and 40 beyond the 90th."""
_FEWEST_UNITS: Final = 20
"""Fewer units than this are drawn as time blocks instead: their spread would rest on a handful."""
_BOOTSTRAP: Final = 7
"""Names this stream of random numbers beside the others of the same seed."""


@dataclass(frozen=True, slots=True)
class Units:
    """What is drawn as a whole."""

    of_request: IntArray
    """(requests,) the unit of each, dense."""
    count: int
    unit: Unit


def resampling_units(trace: RequestTrace, conversation: IntArray | None) -> Units:
    """Sessions where the log names them, else conversations, else blocks of requests in time.

    `conversation` is (requests,), -1 where a request is of none; null: not known. A request of no
    session is a unit of its own. Time blocks: about as many as each holds requests.
    """
    named = [("sessions", trace.session), ("conversations", conversation)]
    for unit, ids in named:
        if ids is not None and len(ids) == trace.requests and (np.asarray(ids) >= 0).mean() > 0.5:
            dense = _dense(np.asarray(ids, dtype=np.int64))
            if dense.max() + 1 >= _FEWEST_UNITS:
                return Units(dense, int(dense.max()) + 1, unit)  # type: ignore[arg-type]
    blocks = max(1, round(trace.requests**0.5))
    places = np.arange(trace.requests, dtype=np.int64) * blocks // max(trace.requests, 1)
    return Units(places, blocks, "time_blocks")


def _dense(ids: IntArray) -> IntArray:
    alone = np.flatnonzero(ids < 0)
    own = ids.copy()
    own[alone] = ids.max(initial=0) + 1 + np.arange(len(alone))
    return np.asarray(np.unique(own, return_inverse=True)[1], dtype=np.int64)


def draw(units: Units, seed: int, replicates: int = REPLICATES) -> IntArray:
    """(replicates, units) how often each unit is drawn; each row draws as many as there are."""
    random = np.random.default_rng([seed, _BOOTSTRAP])
    shares = np.full(units.count, 1.0 / units.count)
    return np.asarray(random.multinomial(units.count, shares, size=replicates), dtype=np.int64)


def resampled_sums(values: FloatArray, units: Units, counts: IntArray) -> FloatArray:
    """(replicates,) sum of the drawn requests' values."""
    per_unit = np.bincount(units.of_request, weights=values, minlength=units.count)
    return np.asarray(counts @ per_unit, dtype=np.float64)


def drawn_requests(units: Units, row: IntArray) -> IntArray:
    """Indices of the requests of one draw, in the order of the trace."""
    return np.repeat(np.arange(len(units.of_request), dtype=np.int64), row[units.of_request])
