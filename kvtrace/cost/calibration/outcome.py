"""What a calibration found: parameters, errors before and after, residuals by bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.cost.calibration.fit import Fitted, best_values, fit
from kvtrace.cost.calibration.observations import Bools, Floats
from kvtrace.cost.calibration.parameters import DECODE, NESTED, PREFILL, Parameter
from kvtrace.cost.calibration.screen import ENOUGH

Series = Mapping[str, Floats]
"""By metric: (rows,) seconds; NaN where there is none."""
_ENOUGH_FOR_P99: Final = 100
_TRAINED: Final = 2 / 3
"""Of the half that is fitted, the share that chooses which parameters join."""
_NO_GAIN: Final = 1.1
"""Errors within this factor are alike: the smaller set of parameters is taken."""
_NO_ERROR: Final = 0.005
"""A median error that is not worth a fit."""
_NO_BETTER: Final = (
    "fitted as well, it does not make later requests of the same half more predictable"
)
_AS_GOOD: Final = "the model's own value predicts later requests of the same half as well"


@dataclass(frozen=True, slots=True)
class ErrorOfMetric:
    """Predicted against observed, over rows that were not fitted."""

    metric: str
    rows: int
    mean_before: float
    """Mean predicted over mean observed, less one."""
    mean_after: float
    p99_before: float | None
    """The same of the 99th percentiles; null below 100 rows."""
    p99_after: float | None
    median_before: float
    """Median absolute relative error of single rows."""
    median_after: float
    p90_before: float
    """90th percentile of the absolute relative errors."""
    p90_after: float


@dataclass(frozen=True, slots=True)
class Residual:
    """Errors after the fit in one bucket, over rows that were not fitted."""

    metric: str
    by: str
    """prompt_tokens | batch | moved_bytes"""
    least: float
    """The bucket holds values from here on, up to twice as much."""
    rows: int
    median: float
    """Median of predicted over observed, less one."""
    p90: float
    """90th percentile of the absolute relative error."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """One fit with what it is worth."""

    subject: str
    """requests | moves over PATH"""
    fitted_rows: int
    held_rows: int
    parameters: tuple[Fitted, ...]
    errors: tuple[ErrorOfMetric, ...]
    residuals: tuple[Residual, ...]
    notes: tuple[str, ...] = ()

    def values(self) -> dict[str, float]:
        """Constants that were identified, by id."""
        return {
            one.parameter.constant.id: one.value for one in self.parameters if one.refusal is None
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """What is fitted to what."""

    subject: str
    parameters: tuple[Parameter, ...]
    observed: Series
    predict: Callable[[Mapping[str, float]], Series]
    """Seconds with constants (by id) at these values."""
    fitted: Bools
    """(rows,) of the half that is fitted; the rest is held against the fit."""
    buckets: Series
    informed_by: Callable[[str], Sequence[str]]
    """Metrics that a parameter (by name) moves."""
    refused: Mapping[str, str]
    """Parameters that the data cannot tell, beforehand."""
    notes: tuple[str, ...] = ()
    is_forced: bool = False
    """All parameters join the fit, whether or not later requests gain by it."""


def first_half(at: Floats) -> Bools:
    """(rows,) whether a row is of the earlier half; rows without an instant are of neither."""
    known = np.isfinite(at)
    if not known.any():
        return known
    order = np.argsort(np.where(known, at, np.inf), kind="stable")
    early = np.zeros(len(at), dtype=np.bool_)
    early[order[: (int(known.sum()) + 1) // 2]] = True
    return early


def metrics_of_requests(name: str) -> tuple[str, ...]:
    """Metrics of the direct model that a parameter moves first of all."""
    if name in PREFILL:
        return ("prefill",)
    return ("decode",) if name in DECODE else ()


def solve(problem: Problem, *, seed: int, step: float = 1e-3) -> Calibration:
    """Fit the earlier half and hold the later one against it."""
    before = problem.predict({})
    usable = {
        metric: np.isfinite(seconds) & np.isfinite(before[metric]) & (before[metric] > 0)
        for metric, seconds in problem.observed.items()
    }
    refused = dict(problem.refused)
    for parameter in problem.parameters:
        rows = sum(
            int((usable[metric] & problem.fitted).sum())
            for metric in problem.informed_by(parameter.name)
            if metric in usable
        )
        if rows < ENOUGH:
            refused.setdefault(
                parameter.name, f"fewer than {ENOUGH} rows of the earlier half tell it"
            )
    found = _fit(problem, usable, refused, seed=seed, step=step)
    values = {one.parameter.constant.id: one.value for one in found if one.refusal is None}
    after = problem.predict(values) if values else before
    held = {metric: usable[metric] & ~problem.fitted for metric in usable}
    return Calibration(
        subject=problem.subject,
        fitted_rows=_any(usable, problem.fitted),
        held_rows=_any(usable, ~problem.fitted),
        parameters=found,
        errors=tuple(_errors(problem.observed, before, after, held)),
        residuals=tuple(_residuals(problem, after, held)),
        notes=problem.notes,
    )


def _any(usable: Mapping[str, Bools], half: Bools) -> int:
    return int((np.logical_or.reduce(list(usable.values())) & half).sum()) if usable else 0


def _fit(
    problem: Problem,
    usable: Mapping[str, Bools],
    refused: Mapping[str, str],
    *,
    seed: int,
    step: float,
) -> tuple[Fitted, ...]:
    rows = {metric: usable[metric] & problem.fitted for metric in usable}
    early = _Early(problem, rows)
    sought = [one for one in problem.parameters if one.name not in refused]
    joining, others = (sought, {}) if problem.is_forced else early.chosen(sought, step)
    refused = {**refused, **others}
    fitted = {
        one.parameter.name: one
        for one in fit(
            joining,
            early.predict,
            early.observed,
            informs=early.informs,
            seed=seed,
            step=step,
        )
    }
    return tuple(
        fitted.get(one.name) or Fitted(one, one.start, None, None, refused[one.name])
        for one in problem.parameters
    )


class _Early:
    """The rows that are fitted, of all metrics one after the other."""

    def __init__(self, problem: Problem, rows: Mapping[str, Bools]) -> None:
        self._problem = problem
        self._rows = rows
        self.observed = self._joined(problem.observed)
        self._names = np.concatenate(
            [np.full(int(mask.sum()), metric) for metric, mask in rows.items()]
        )
        self._is_late = np.concatenate(
            [np.arange(count := int(mask.sum())) >= _TRAINED * count for mask in rows.values()]
        )

    def predict(self, values: Mapping[str, float]) -> Floats:
        """(rows,) seconds."""
        return self._joined(self._problem.predict(values))

    def informs(self, name: str) -> Bools:
        """(rows,) that a parameter may move."""
        return np.isin(self._names, list(self._problem.informed_by(name)))

    def chosen(
        self, sought: Sequence[Parameter], step: float
    ) -> tuple[list[Parameter], dict[str, str]]:
        """The parameters that join the fit, and why the others do not.

        Sets that grow by `NESTED` are fitted to the first two thirds of the rows; the smallest
        whose error on the last third is within `_NO_GAIN` of the least one joins; none does where
        no set makes it smaller than it is without a fit.
        """
        sets = _growing(sought)
        scores = [self._score(one, step) for one in sets]
        best = min(scores, default=0.0)
        if not sets or self._score([], step) <= max(best, _NO_ERROR):
            return [], {one.name: _AS_GOOD for one in sought}
        at = next(i for i, score in enumerate(scores) if score <= best * _NO_GAIN)
        joined = sets[at]
        return joined, {one.name: _NO_BETTER for one in sought if one not in joined}

    def _score(self, parameters: Sequence[Parameter], step: float) -> float:
        """Mean over metrics of the median error of the last third, after a fit to the rest."""
        train = ~self._is_late
        values = {}
        if parameters:
            values = best_values(
                parameters, lambda at: self.predict(at)[train], self.observed[train], step=step
            )
        error = np.abs(np.log(self.predict(values) / self.observed))
        return float(
            np.mean(
                [
                    np.median(error[self._is_late & (self._names == metric)])
                    for metric in self._rows
                    if (self._is_late & (self._names == metric)).any()
                ]
            )
        )

    def _joined(self, series: Series) -> Floats:
        return np.concatenate([series[metric][mask] for metric, mask in self._rows.items()])


def _growing(sought: Sequence[Parameter]) -> list[list[Parameter]]:
    """Sets of parameters, each with the one before in it, in the order of `NESTED`."""
    sets: list[list[Parameter]] = []
    names: set[str] = set()
    for group in (*NESTED, tuple(one.name for one in sought)):
        names |= set(group)
        members = [one for one in sought if one.name in names]
        if members and (not sets or len(members) > len(sets[-1])):
            sets.append(members)
    return sets


def _errors(
    observed: Series, before: Series, after: Series, held: Mapping[str, Bools]
) -> list[ErrorOfMetric]:
    rows = []
    for metric, mask in held.items():
        if not mask.any():
            continue
        seen, old, new = observed[metric][mask], before[metric][mask], after[metric][mask]
        has_p99 = len(seen) >= _ENOUGH_FOR_P99
        rows.append(
            ErrorOfMetric(
                metric=metric,
                rows=len(seen),
                mean_before=_off(old.mean(), seen.mean()),
                mean_after=_off(new.mean(), seen.mean()),
                p99_before=_off(_p99(old), _p99(seen)) if has_p99 else None,
                p99_after=_off(_p99(new), _p99(seen)) if has_p99 else None,
                median_before=float(np.median(np.abs(old / seen - 1))),
                median_after=float(np.median(np.abs(new / seen - 1))),
                p90_before=float(np.quantile(np.abs(old / seen - 1), 0.9)),
                p90_after=float(np.quantile(np.abs(new / seen - 1), 0.9)),
            )
        )
    return rows


def _off(predicted: float, observed: float) -> float:
    return float(predicted / observed - 1)


def _p99(seconds: Floats) -> float:
    return float(np.quantile(seconds, 0.99))


def _residuals(problem: Problem, after: Series, held: Mapping[str, Bools]) -> list[Residual]:
    found = []
    for metric, mask in held.items():
        ratio = after[metric] / problem.observed[metric] - 1
        for by, value in problem.buckets.items():
            known = mask & np.isfinite(value) & (value >= 1)
            bucket = np.floor(np.log2(np.where(known, value, 1.0)))
            for level in np.unique(bucket[known]).tolist():
                chosen = ratio[known & (bucket == level)]
                found.append(
                    Residual(
                        metric=metric,
                        by=by,
                        least=2.0**level,
                        rows=len(chosen),
                        median=float(np.median(chosen)),
                        p90=float(np.quantile(np.abs(chosen), 0.9)),
                    )
                )
    return found
