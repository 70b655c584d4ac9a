"""Robust, bounded least squares in log space, and errors on cells that were left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from costfit.parameters import PARAMETERS, Shares, with_values
from kvtrace.cost import load_hardware, load_llm
from kvtrace.cost.efficiency import EfficiencyTable
from kvtrace.cost.validation import Point, Prediction, predict

Cell = tuple[str, str]
FITTED_KINDS = ("prefill_ttft", "prefill_composed", "prefill_throughput", "decode", "speedup")
_LOADED = ("ttft", "prefill")
"""Words of a metric of a load that reaches to the first token."""
_PRIOR_WEIGHT = 0.5
"""Weight of a start that is off by its own prior, against a point that is off by its own trust."""
_SERVED_WEIGHT = 0.6
_LARGEST_RESIDUAL = 6.0
_MOST_STEPS = 15


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted values and their 90 % intervals."""

    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    points: int


def cell_of(point: Point) -> Cell:
    """The (LLM, GPU) of a point: what is left out as one."""
    return (load_llm(point.model).name, load_hardware(point.gpu).gpu.name)


def solve(points: Sequence[Point], table: EfficiencyTable, shares: Shares) -> Fit:
    """The values that fit these points.

    Residuals: log(predicted / measured) / (0.1 + trust), each cell damped by its number of points,
    Cauchy loss; a prior around each start holds what the points leave open.
    """
    weights = np.array(_weights(points))
    priors = np.array([parameter.prior for parameter in PARAMETERS])
    start = np.log([parameter.start for parameter in PARAMETERS])
    low = np.log([parameter.low for parameter in PARAMETERS])
    high = np.log([parameter.high for parameter in PARAMETERS])

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        tried = with_values(table, PARAMETERS, np.exp(logs).tolist(), shares)
        errors = np.array([_log_error(predict(point, tried)) for point in points])
        robust = np.sign(errors) * np.sqrt(np.log1p((errors * weights) ** 2))
        return np.concatenate([robust, _PRIOR_WEIGHT * (logs - start) / priors])

    found = least_squares(residuals, start, bounds=(low, high), max_nfev=_MOST_STEPS, x_scale="jac")
    spread = _spread(np.asarray(found.jac, dtype=np.float64), found.fun)
    return Fit(
        values=np.exp(found.x),
        low=np.exp(np.maximum(found.x - spread, low)),
        high=np.exp(np.minimum(found.x + spread, high)),
        points=len(points),
    )


def cross_validate(
    points: Sequence[Point], table: EfficiencyTable, shares: Shares, folds: int
) -> tuple[Prediction, ...]:
    """Predictions of every point by a fit that saw no point of its cell."""
    cells = sorted({cell_of(point) for point in points})
    held = {cell: index % folds for index, cell in enumerate(cells)}
    found: list[Prediction] = []
    for fold in range(folds):
        inside = [point for point in points if held[cell_of(point)] != fold]
        outside = [point for point in points if held[cell_of(point)] == fold]
        tried = with_values(table, PARAMETERS, solve(inside, table, shares).values.tolist(), shares)
        found += [predict(point, tried) for point in outside]
    return tuple(found)


def usable(points: Sequence[Point], table: EfficiencyTable) -> tuple[Point, ...]:
    """The points of the fitted kinds that the model can express with this table."""
    return tuple(
        point
        for point in points
        if (point.kind in FITTED_KINDS or _is_loaded(point))
        and point.value > 0
        and (predict(point, table).predicted or 0) > 0
    )


def _is_loaded(point: Point) -> bool:
    """A load with the step that follows it: it shows what a step of one token costs."""
    return point.kind == "kv_load" and any(word in point.metric for word in _LOADED)


def _weights(points: Sequence[Point]) -> list[float]:
    counts: dict[tuple[Cell, str], int] = {}
    for point in points:
        key = (cell_of(point), point.series)
        counts[key] = counts.get(key, 0) + 1
    return [
        (_SERVED_WEIGHT if point.series == "served" else 1.0)
        / (0.1 + (point.tol_rel or 0.3))
        / counts[(cell_of(point), point.series)] ** 0.25
        for point in points
    ]


def _log_error(one: Prediction) -> float:
    if one.predicted is None or one.predicted <= 0:
        return _LARGEST_RESIDUAL
    return math.log(one.predicted / one.point.value)


def _spread(jacobian: NDArray[np.float64], residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half-widths of the 90 % intervals in log space."""
    free = max(1, len(residuals) - jacobian.shape[1])
    scale = float(residuals @ residuals) / free
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * scale
    return np.asarray(1.645 * np.sqrt(np.diag(covariance)), dtype=np.float64)
