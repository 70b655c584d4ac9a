"""Quantiles and shares of samples, each with the standard error of the sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from kvtrace.schema.arrays import FloatArray, IntArray

_REDRAWS: Final = 64
"""Draws of the replayed points, for the error that comes from how few they are."""
_REDRAW: Final = 13
"""Names this stream of random numbers beside the others of the same seed."""
Statistic = Callable[[FloatArray], float]


class Estimate(NamedTuple):
    """A statistic of samples."""

    value: float
    error: float
    """Standard error."""


def estimate(
    samples: FloatArray, statistic: Statistic, *, point: IntArray | None, seed: int
) -> Estimate:
    """The statistic of all samples (scrambles, points).

    Error: the spread over independent scrambles over their root; with `point`, the replayed point
    behind each sample, also that over draws of the points.
    """
    rows = np.array([statistic(row) for row in samples])
    error = float(rows.std(ddof=1)) / math.sqrt(len(rows)) if len(rows) > 1 else 0.0
    if point is not None:
        error = math.hypot(error, _redrawn(samples.ravel(), point.ravel(), statistic, seed))
    return Estimate(statistic(samples.ravel()), error)


def _redrawn(samples: FloatArray, point: IntArray, statistic: Statistic, seed: int) -> float:
    """Spread of the statistic when the replayed points are drawn again, each with its samples."""
    random = np.random.default_rng([seed, _REDRAW])
    of_point = [samples[point == one] for one in np.unique(point)]
    values = []
    for _ in range(_REDRAWS):
        chosen = random.integers(len(of_point), size=len(of_point))
        values.append(statistic(np.concatenate([of_point[i] for i in chosen])))
    return float(np.std(values, ddof=1))


def quantile(share: float) -> Statistic:
    """The quantile of some samples."""
    return lambda samples: float(np.quantile(samples, share))


def share_above_zero(samples: FloatArray) -> float:
    """Of the samples, the share above zero."""
    return float((samples > 0).mean())


def few_points_error(share: float, points: int) -> float:
    """Least standard error of a share that rests on so many replayed points.

    Formula: sqrt(p (1 - p) / n) with two successes and two failures added (Agresti, Coull 1998):
    that all points agree does not make a share exact.
    """
    count = points + 4
    mended = (share * points + 2) / count
    return math.sqrt(mended * (1 - mended) / count)
