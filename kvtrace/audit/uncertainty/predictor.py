"""From replays at some points to a response anywhere: a surrogate, or the nearest thing to none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvtrace.audit.thresholds import SURROGATE_ERROR
from kvtrace.audit.uncertainty.design import ReplayedDesign, Response
from kvtrace.audit.uncertainty.surrogate import Surrogate, fit_surrogate, left_out_error
from kvtrace.schema.arrays import BoolArray, FloatArray

Of = Callable[[Response], float]


@dataclass(frozen=True, slots=True)
class Predicted:
    """One figure of the replays: of its surrogate if that is good, else of the points."""

    at_points: FloatArray
    surrogate: Surrogate | None
    """Null: none could be fitted, or it was refused."""
    error: float | None
    """Leave-one-out error over the carrying number, also of a refused one; null: none fitted."""
    is_log: bool = False
    """The surrogate is of the logarithm."""

    @property
    def is_surrogate(self) -> bool:
        """Values anywhere come from a fit."""
        return self.surrogate is not None

    def at(self, coordinates: FloatArray, point: np.ndarray) -> FloatArray:
        """(n,) values: of the fit at (n, inputs) coordinates, else of these replayed points."""
        if self.surrogate is None:
            return np.asarray(self.at_points[point], dtype=np.float64)
        found = self.surrogate.at(coordinates)
        return np.exp(found) if self.is_log else found


def predict_figure(
    design: ReplayedDesign, of: Of, carrying: float, *, is_log: bool = False
) -> Predicted:
    """One figure of a response; a surrogate is refused above a tenth of `carrying`.

    `is_log`: the figure is a ratio above zero, and its logarithm is fitted.
    """
    values = np.array([of(point) for point in design.replayed], dtype=np.float64)
    drawn = values[: len(design.points)]
    found = fit_surrogate(design.coordinates, np.log(values) if is_log else values)
    if found is None:
        return Predicted(drawn, None, None)
    left_out = np.exp(found.left_out) if is_log else found.left_out
    error = left_out_error(left_out, values, carrying)
    is_good = error <= SURROGATE_ERROR.value
    return Predicted(drawn, found if is_good else None, error, is_log)


@dataclass(frozen=True, slots=True)
class PredictedClaim:
    """Whether the claim of saved instances holds, anywhere."""

    margins_at_points: FloatArray
    """(points, runs)"""
    surrogates: tuple[Surrogate, ...]
    """Of each run's margin; empty: none could be fitted, or they were refused."""
    error: float | None

    @property
    def is_surrogate(self) -> bool:
        """Margins anywhere come from fits."""
        return bool(self.surrogates)

    def margins(self, coordinates: FloatArray, point: np.ndarray) -> FloatArray:
        """(n, runs) margins: of the fits, else of these replayed points."""
        if not self.surrogates:
            return np.asarray(self.margins_at_points[point], dtype=np.float64)
        return np.column_stack([one.at(coordinates) for one in self.surrogates])


def claim_holds(margins: FloatArray) -> BoolArray:
    """(n,) by (n, runs): the pool keeps the SLO, and each rival clearly misses it."""
    if not margins.shape[1]:
        return np.zeros(len(margins), dtype=np.bool_)
    return np.asarray((margins[:, 0] <= 0) & (margins[:, 1:] > 0).all(axis=1), dtype=np.bool_)


def predict_claim(design: ReplayedDesign, saved_usd: float, carrying: float) -> PredictedClaim:
    """The claim; its surrogate is refused where instances predicted for points left out err by more
    than a tenth of the net value (`carrying`). `saved_usd`: worth of the claim's instances.
    """
    margins = np.array([point.margins for point in design.replayed], dtype=np.float64)
    margins = margins.reshape(len(design.replayed), -1)
    true, drawn = claim_holds(margins), margins[: len(design.points)]
    fits = [fit_surrogate(design.coordinates, column) for column in margins.T]
    known = [one for one in fits if one is not None]
    if len(known) < len(fits) or not known:
        return PredictedClaim(drawn, (), None)
    left_out = claim_holds(np.column_stack([one.left_out for one in known]))
    error = left_out_error(
        saved_usd * left_out.astype(np.float64), saved_usd * true.astype(np.float64), carrying
    )
    is_good = error <= SURROGATE_ERROR.value
    return PredictedClaim(drawn, tuple(known) if is_good else (), error)
