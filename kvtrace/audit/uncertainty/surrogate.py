"""A replayed figure as a polynomial of the uncertain inputs, with its leave-one-out error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.schema.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Sum over inputs of a polynomial of each, no products between inputs.

    Formula: y = c + Σ (a_i z_i + b_i z_i²), z the coordinates (low -1, high +1); least squares.
    """

    degree: int
    """1 or 2: the one with the smaller leave-one-out error."""
    weights: FloatArray
    left_out: FloatArray
    """(points,) each point as predicted by a fit to all the others."""

    def at(self, coordinates: FloatArray) -> FloatArray:
        """(n,) predictions at (n, inputs) coordinates."""
        return np.asarray(_basis(coordinates, self.degree) @ self.weights, dtype=np.float64)


def fit_surrogate(coordinates: FloatArray, values: FloatArray) -> Surrogate | None:
    """The fit to (points, inputs) and (points,); null: too few points, or some without a value."""
    if not np.isfinite(values).all():
        return None
    fits = [_fit(coordinates, values, degree) for degree in (1, 2)]
    known = [one for one in fits if one is not None]
    if not known:
        return None
    return min(known, key=lambda one: (float(((one.left_out - values) ** 2).sum()), one.degree))


def _fit(coordinates: FloatArray, values: FloatArray, degree: int) -> Surrogate | None:
    """Least squares; the left-out value of a point is y - e / (1 - h), h its leverage."""
    basis = _basis(coordinates, degree)
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
    return Surrogate(degree, weights, left_out)


def _basis(coordinates: FloatArray, degree: int) -> FloatArray:
    powers = [coordinates**power for power in range(1, degree + 1)]
    return np.hstack([np.ones((len(coordinates), 1)), *powers])


def left_out_error(predicted: FloatArray, true: FloatArray, carrying: float) -> float:
    """Root mean square error over the carrying number; infinite where that is zero and it errs."""
    rms = float(np.sqrt(np.mean((predicted - true) ** 2)))
    if rms == 0.0:
        return 0.0
    return rms / abs(carrying) if carrying else float("inf")
