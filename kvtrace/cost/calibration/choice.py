"""Which parameters join a fit: the fewest that make later requests of the same half predictable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from kvtrace.cost.calibration.fit import best_values
from kvtrace.cost.calibration.observations import Bools, Floats
from kvtrace.cost.calibration.parameters import NESTED, Parameter
from kvtrace.cost.calibration.problem import Problem, Series

_TRAINED: Final = 2 / 3
"""Of the half that is fitted, the share that chooses which parameters join."""
_NO_GAIN: Final = 1.1
"""Errors within this factor are alike: the smaller set of parameters is taken."""
NO_ERROR: Final = 0.005
"""A median error that is not worth a fit."""
_NO_BETTER: Final = (
    "fitted as well, it does not make later requests of the same half more predictable"
)
_AS_GOOD: Final = "the model's own value predicts later requests of the same half as well"


class EarlyRows:
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
        if not sets or self._score([], step) <= max(best, NO_ERROR):
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
