"""A replayed figure as a polynomial of the uncertain inputs, with its leave-one-out error."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, get_args

import numpy as np

from kvtrace.schema.arrays import FloatArray

Terms = Literal["linear", "squares", "products"]
"""linear: each input; squares: and its square; products: and those of each two inputs."""
_TERMS: Final[tuple[Terms, ...]] = get_args(Terms)


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A polynomial of degree one or two by least squares.

    Formula: y = c + Σ a_i z_i (+ Σ b_i z_i² (+ Σ c_ij z_i z_j)), z the coordinates (low -1,
    high +1).
    """

    terms: Terms
    """Those with the smallest leave-one-out error."""
    weights: FloatArray
    left_out: FloatArray
    """(points,) each point as predicted by a fit to all the others."""
    low: FloatArray
    """(inputs,) the lowest coordinate of any point; beyond the points nothing is extrapolated."""
    high: FloatArray

    def at(self, coordinates: FloatArray) -> FloatArray:
        """(n,) predictions at (n, inputs) coordinates, each taken into the range of the points."""
        inside = np.clip(coordinates, self.low, self.high)
        return np.asarray(_basis(inside, self.terms) @ self.weights, dtype=np.float64)


def fit_surrogate(coordinates: FloatArray, values: FloatArray) -> Surrogate | None:
    """The fit to (points, inputs) and (points,); null: too few points, or some without a value."""
    if not np.isfinite(values).all():
        return None
    fits = [_fit(coordinates, values, terms) for terms in _TERMS]
    known = [one for one in fits if one is not None]
    if not known:
        return None
    return min(known, key=lambda one: float(((one.left_out - values) ** 2).sum()))


def _fit(coordinates: FloatArray, values: FloatArray, terms: Terms) -> Surrogate | None:
    """Least squares; the left-out value of a point is y - e / (1 - h), h its leverage."""
    basis = _basis(coordinates, terms)
    points, columns = basis.shape
    if points < columns + 2:
        return None
    orthogonal, triangle = np.linalg.qr(basis)
    if np.abs(np.diag(triangle)).min() < 1e-9 * np.abs(np.diag(triangle)).max():
        return None
    weights = np.linalg.solve(triangle, orthogonal.T @ values)
    leverage = np.square(orthogonal).sum(axis=1)
    if leverage.max() > 1.0 - 1e-9:
        return None
    left_out = values - (values - basis @ weights) / (1.0 - leverage)
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    return Surrogate(terms, weights, left_out, low, high)


def _basis(coordinates: FloatArray, terms: Terms) -> FloatArray:
    columns = [np.ones((len(coordinates), 1)), coordinates]
    if terms != "linear":
        columns.append(coordinates**2)
    if terms == "products":
        pairs = combinations(range(coordinates.shape[1]), 2)
        columns += [coordinates[:, [i]] * coordinates[:, [j]] for i, j in pairs]
    return np.hstack(columns)


def left_out_error(predicted: FloatArray, true: FloatArray, carrying: float) -> float:
    """Root mean square error over the carrying number; infinite where that is zero and it errs."""
    rms = float(np.sqrt(np.mean((predicted - true) ** 2)))
    if rms == 0.0:
        return 0.0
    return rms / abs(carrying) if carrying else float("inf")
