"""What a fit is worth: errors and residuals over the rows that were not fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.cost.calibration.observations import Bools, Floats
from kvtrace.cost.calibration.problem import Problem, Series

_ENOUGH_FOR_P99: Final = 100


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


def errors_of(
    observed: Series, before: Series, after: Series, held: Mapping[str, Bools]
) -> list[ErrorOfMetric]:
    """One row a metric that has rows in `held`, the mask of those that were not fitted."""
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


def residuals_of(problem: Problem, after: Series, held: Mapping[str, Bools]) -> list[Residual]:
    """By metric and by power of two of each bucket's value."""
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
