"""A robust, bounded fit of constants to seconds, with intervals and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.cost.calibration.observations import Bools, Floats
from kvtrace.cost.calibration.parameters import LEAST_FIRST, Parameter

NOISE: Final = 0.1
"""Relative error up to which a residual counts by its square; beyond, by its size (soft L1)."""
_COVERED: Final = 0.9
"""Share that an interval covers."""
_NORMAL: Final = 1.6449
"""Standard deviations of a normal that cover it, either way."""
WIDEST: Final = 3.0
"""An interval whose high end is more than so many times its low end says nothing."""
_ALIKE: Final = 0.97
"""Correlation of two columns of the Jacobian above which the data cannot tell them apart."""
_BLOCKS: Final = 20
"""Runs of neighbouring rows that the bootstrap draws from."""
_LEAST_NOISE: Final = 0.01
"""Relative error that the model has at least, however well it happens to fit."""
_UNMOVED: Final = 1e-6
"""Norm of a column of the Jacobian below which the parameter moves nothing."""
_ENOUGH_GAIN: Final = 1e-5
_MOST_ROUNDS: Final = 40
_FARTHEST: Final = 20.0
"""Logarithm beyond which an end of an interval is as good as infinite."""
_DRAWS: Final = 400
_MAD: Final = 1.4826
"""Standard deviation of a normal over its median absolute deviation."""

Predict = Callable[[Mapping[str, float]], Floats]
"""(rows,) seconds, with constants (by id) at these values."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One parameter after the fit."""

    parameter: Parameter
    value: float
    """That of the model where it is not identified."""
    low: float | None
    high: float | None
    """Ends of the 90 % interval; null where it is not identified."""
    refusal: str | None
    """Why the data cannot tell it; null: it is identified."""


@dataclass(frozen=True, slots=True)
class _Solution:
    values: Floats
    low: Floats
    high: Floats
    jacobian: Floats
    """(rows, parameters) of log seconds over log values, times the weights of the loss."""


def fit(
    parameters: Sequence[Parameter],
    predict: Predict,
    observed_s: Floats,
    *,
    informs: Callable[[str], Bools],
    seed: int,
    step: float = 1e-3,
) -> tuple[Fitted, ...]:
    """Fit the parameters, refusing one after the other those that the data cannot tell.

    `predict` gives seconds by values of constants (ids); `informs` the rows that a parameter may
    move; `step` is the relative step of the numerical derivative.

    Minimises the sum of soft L1 losses of log(predicted / observed) / `NOISE`.
    """
    refused: dict[str, str] = {}
    while True:
        kept = [one for one in parameters if one.name not in refused]
        solution = _solve(kept, predict, observed_s, seed=seed, step=step) if kept else None
        fault = None if solution is None else _refused(kept, solution, informs)
        if fault is None:
            break
        refused[fault[0]] = fault[1]
    return tuple(_fitted(one, kept, solution, refused) for one in parameters)


def best_values(
    parameters: Sequence[Parameter], predict: Predict, observed_s: Floats, *, step: float = 1e-3
) -> dict[str, float]:
    """The values (by id of the constant) with the least loss, without intervals or refusals."""
    logs, _ = _least(parameters, predict, observed_s, step)
    return {
        one.constant.id: one.start * math.exp(log)
        for one, log in zip(parameters, logs.tolist(), strict=True)
    }


def _fitted(
    parameter: Parameter,
    kept: Sequence[Parameter],
    solution: _Solution | None,
    refused: Mapping[str, str],
) -> Fitted:
    if solution is None or parameter.name in refused:
        return Fitted(parameter, parameter.start, None, None, refused[parameter.name])
    at = kept.index(parameter)
    value = float(solution.values[at])
    low, high = float(solution.low[at]), float(solution.high[at])
    return Fitted(parameter, value, low, high, None)


def _solve(
    parameters: Sequence[Parameter],
    predict: Predict,
    observed_s: Floats,
    *,
    seed: int,
    step: float,
) -> _Solution:
    logs, residuals = _least(parameters, predict, observed_s, step)
    left = residuals(logs)
    jacobian = _jacobian(residuals, logs, left, step)
    low, high = _interval(logs, left, jacobian, seed)
    starts = np.array([one.start for one in parameters])
    return _Solution(starts * np.exp(logs), starts * np.exp(low), starts * np.exp(high), jacobian)


def _least(
    parameters: Sequence[Parameter], predict: Predict, observed_s: Floats, step: float
) -> tuple[Floats, Callable[[Floats], Floats]]:
    """(logarithms of values over starts with the least loss, residuals as their function)."""
    from scipy.optimize import least_squares

    starts = np.array([one.start for one in parameters])
    ids = [one.constant.id for one in parameters]

    def residuals(logs: Floats) -> Floats:
        values = starts * np.exp(logs)
        seconds = predict(dict(zip(ids, values.tolist(), strict=True)))
        return np.asarray(np.log(seconds / observed_s) / NOISE)

    found = least_squares(
        residuals,
        np.zeros(len(parameters)),
        bounds=(
            np.log([one.least / one.start for one in parameters]),
            np.log([one.most / one.start for one in parameters]),
        ),
        loss="soft_l1",
        diff_step=[step] * len(starts),
        ftol=_ENOUGH_GAIN,
        xtol=_ENOUGH_GAIN,
        max_nfev=_MOST_ROUNDS,
    )
    return np.asarray(found.x), residuals


def _jacobian(
    residuals: Callable[[Floats], Floats], at: Floats, left: Floats, step: float
) -> Floats:
    """Forward differences, each row times the square root of its weight in the loss."""
    columns = []
    for index in range(len(at)):
        moved = at.copy()
        moved[index] += step
        columns.append((residuals(moved) - left) / step)
    return np.asarray(np.stack(columns, axis=1) * np.sqrt(_weights(left))[:, None])


def _weights(left: Floats) -> Floats:
    """Derivative of the soft L1 loss by the squared residual."""
    return np.asarray(1.0 / np.sqrt(1.0 + left * left))


def _interval(at: Floats, left: Floats, jacobian: Floats, seed: int) -> tuple[Floats, Floats]:
    """Low and high of each logarithm: the wider of the Jacobian's and a block bootstrap's.

    Jacobian: covariance sigma^2 (J'J)^-1, sigma by the median absolute residual. Bootstrap: rows in
    `_BLOCKS` runs of neighbours, drawn with replacement; each draw makes one Gauss-Newton step.
    """
    normal = np.linalg.pinv(jacobian.T @ jacobian)
    sigma = max(float(np.median(np.abs(left - np.median(left)))) * _MAD, _LEAST_NOISE / NOISE)
    spread = _NORMAL * sigma * np.sqrt(np.diag(normal))
    spread = np.where(np.linalg.norm(jacobian, axis=0) > _UNMOVED, spread, 2 * _FARTHEST)
    pull = jacobian * (np.sqrt(_weights(left)) * left)[:, None]
    drawn = _bootstrap(jacobian, pull, seed)
    tail = (1.0 - _COVERED) / 2
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0) if len(drawn) else (-spread, spread)
    low, high = at + np.minimum(low, -spread), at + np.maximum(high, spread)
    return np.maximum(low, -_FARTHEST), np.minimum(high, _FARTHEST)


def _bootstrap(jacobian: Floats, pull: Floats, seed: int) -> Floats:
    """(draws, parameters) steps of resampled fits, about their mean."""
    rows = len(jacobian)
    edges = np.unique(np.linspace(0, rows, min(_BLOCKS, rows) + 1).astype(int))
    blocks = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    squares = np.stack([jacobian[lo:hi].T @ jacobian[lo:hi] for lo, hi in blocks])
    pulls = np.stack([pull[lo:hi].sum(axis=0) for lo, hi in blocks])
    generator = np.random.Generator(np.random.PCG64(seed))
    counts = generator.multinomial(len(blocks), [1.0 / len(blocks)] * len(blocks), size=_DRAWS)
    steps = [
        -np.linalg.pinv(np.tensordot(count, squares, axes=1)) @ (count @ pulls) for count in counts
    ]
    drawn = np.stack(steps)
    return np.asarray(drawn - drawn.mean(axis=0))


def _refused(
    parameters: Sequence[Parameter], solution: _Solution, informs: Callable[[str], Bools]
) -> tuple[str, str] | None:
    """Of the parameters that are not identified the least important, and why; null: none."""
    faults: list[tuple[str, str]] = []
    for index, parameter in enumerate(parameters):
        low, high = float(solution.low[index]), float(solution.high[index])
        ratio = high / low if low > 0 else math.inf
        twin = _twin(index, parameters, solution.jacobian, informs)
        if ratio > WIDEST or not math.isfinite(ratio):
            reason = (
                f"the times cannot tell it from {twin}"
                if twin
                else f"its 90 % interval would span {_times(ratio)}: {low:.3g} to {high:.3g}"
            )
            faults.append((parameter.name, reason))
        elif _is_at_bound(parameter, float(solution.values[index])):
            faults.append((parameter.name, "the fit runs into its bound, which is no hardware's"))
    order = {name: place for place, name in enumerate(LEAST_FIRST)}
    return min(faults, key=lambda fault: order.get(fault[0], 0), default=None)


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 1000 else "over 1 000 times"


def _twin(
    index: int, parameters: Sequence[Parameter], jacobian: Floats, informs: Callable[[str], Bools]
) -> str | None:
    """Another parameter that moves the same rows in the same proportions."""
    rows = informs(parameters[index].name)
    mine = jacobian[rows, index]
    for other, parameter in enumerate(parameters):
        theirs = jacobian[rows, other]
        scale = float(np.linalg.norm(mine) * np.linalg.norm(theirs))
        if other != index and scale > 0 and abs(float(mine @ theirs)) / scale > _ALIKE:
            return parameter.name
    return None


def _is_at_bound(parameter: Parameter, value: float) -> bool:
    edge = 1e-3
    return value <= parameter.least * (1 + edge) or value >= parameter.most * (1 - edge)
