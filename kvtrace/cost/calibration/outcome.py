"""What a calibration found: parameters, errors before and after, residuals by bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.cost.calibration.choice import NO_ERROR, EarlyRows
from kvtrace.cost.calibration.fit import Fitted, fit
from kvtrace.cost.calibration.held_out import ErrorOfMetric, Residual, errors_of, residuals_of
from kvtrace.cost.calibration.observations import Bools
from kvtrace.cost.calibration.parameters import DECODE, PREFILL
from kvtrace.cost.calibration.problem import Problem
from kvtrace.cost.calibration.screen import ENOUGH

_SHARES: Final = ("prefill_rate", "decode_bandwidth", "kv_bandwidth")
"""Parameters that are shares of a peak."""


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


def metrics_of_requests(name: str) -> tuple[str, ...]:
    """Metrics of the direct model that a parameter moves first of all."""
    if name in PREFILL:
        return ("prefill",)
    return ("decode",) if name in DECODE else ()


def solve(problem: Problem, *, seed: int, step: float = 1e-3) -> Calibration:
    """Fit the earlier half and hold the later one against it.

    Parameters that make the later half worse keep the model's own value, and the others are fitted
    once more without them; forced ones stay, with a note.
    """
    before = problem.predict({})
    usable = {
        metric: np.isfinite(seconds) & np.isfinite(before[metric]) & (before[metric] > 0)
        for metric, seconds in problem.observed.items()
    }
    held = {metric: usable[metric] & ~problem.fitted for metric in usable}
    refused = _too_few(problem, usable)
    while True:
        found = _fit(problem, usable, refused, seed=seed, step=step)
        values = {one.parameter.constant.id: one.value for one in found if one.refusal is None}
        after = problem.predict(values) if values else before
        errors = errors_of(problem.observed, before, after, held)
        worse = [one for one in errors if one.median_after > one.median_before + NO_ERROR]
        faults = {} if problem.is_forced else _faults(problem, found, worse)
        if not faults:
            break
        refused = {**refused, **faults}
    return Calibration(
        subject=problem.subject,
        fitted_rows=_any(usable, problem.fitted),
        held_rows=_any(usable, ~problem.fitted),
        parameters=found,
        errors=tuple(errors),
        residuals=tuple(residuals_of(problem, after, held)),
        notes=(*problem.notes, *map(_worse, worse), *_above_peak(found)),
    )


def _too_few(problem: Problem, usable: Mapping[str, Bools]) -> dict[str, str]:
    """Refusals known before any fit: those of the data, and parameters that few rows tell."""
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
    return refused


def _faults(
    problem: Problem, found: Sequence[Fitted], worse: Sequence[ErrorOfMetric]
) -> dict[str, str]:
    """By name, each identified parameter told by a metric that the fit made worse."""
    reasons = {one.metric: _worse(one) for one in worse}
    return {
        one.parameter.name: reasons[metric]
        for one in found
        if one.refusal is None
        for metric in problem.informed_by(one.parameter.name)
        if metric in reasons
    }


def _worse(error: ErrorOfMetric) -> str:
    return (
        f"the fit makes {error.metric} of the later half worse: median error "
        f"{100 * error.median_before:.1f} % before, {100 * error.median_after:.1f} % after"
    )


def _above_peak(found: Sequence[Fitted]) -> list[str]:
    """A note for each fitted share of a peak that is more than all of it."""
    return [
        f"{one.parameter.name} of {one.value:.3g} is more than the stated peak: clocks above those "
        "of the data sheet, prefix hits that nobody logged, or times that leave work out"
        for one in found
        if one.refusal is None and one.parameter.name in _SHARES and one.value > 1.0
    ]


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
    early = EarlyRows(problem, rows)
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
