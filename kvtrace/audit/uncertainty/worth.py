"""Value of information: what knowing one input before deciding is worth, from samples."""

from __future__ import annotations

from typing import Final

import numpy as np

from kvtrace.schema.arrays import FloatArray, IntArray

_DEGREE: Final = 3
"""Of the polynomial that gives the mean net value by one input."""
_DEALS: Final = 32
_DEALT: Final = 17
"""Names this stream of random numbers beside the others of the same seed."""


def worth_of_knowing(values: FloatArray, net: FloatArray) -> float:
    """USD a month that the better of two actions gains when one input is known first (EVPPI).

    The actions are the pool (net value) and no pool (zero).
    Formula: mean of max(0, m(x)) - max(0, mean net), m(x) the mean net value by the input, a cubic
    of x by least squares. Source: Strong, Oakley, Brennan, Medical Decision Making 34 (2014):
    regression of the net benefit on the parameter.
    """
    spread = float(values.std())
    if spread == 0.0:
        return 0.0
    scaled = (values - values.mean()) / spread
    basis = np.vander(scaled, _DEGREE + 1)
    weights, *_ = np.linalg.lstsq(basis, net, rcond=None)
    return max(0.0, float(np.maximum(basis @ weights, 0.0).mean()) - max(0.0, float(net.mean())))


def worth_by_points(
    at_points: FloatArray, net: FloatArray, point: IntArray, seed: int
) -> tuple[float, float]:
    """The same where an input takes one value a replayed point, and its standard error.

    A fit to few points finds a pattern where there is none: what it finds when the values are
    dealt out to the points anew, on average, is taken off, and its spread is the error.
    """
    random = np.random.default_rng([seed, _DEALT])
    dealt = [worth_of_knowing(random.permutation(at_points)[point], net) for _ in range(_DEALS)]
    found = worth_of_knowing(at_points[point], net) - float(np.mean(dealt))
    return max(0.0, found), float(np.std(dealt, ddof=1))


def worth_of_knowing_all(net: FloatArray) -> float:
    """USD a month that knowing every input first would gain (EVPI).

    Formula: mean of max(0, net) - max(0, mean net).
    """
    return float(np.maximum(net, 0.0).mean()) - max(0.0, float(net.mean()))
