"""Predicted against measured: the cost model on published measurements.

`read_points` reads a CSV file strictly, `predict` gives one point's value in its own unit or the
reason why there is none, `validate` scores a whole file.
"""

from __future__ import annotations

from kvtrace.cost.validation.points import Point, read_points
from kvtrace.cost.validation.predict import Prediction, predict
from kvtrace.cost.validation.score import Score, Validation, score, validate

__all__ = [
    "Point",
    "Prediction",
    "Score",
    "Validation",
    "predict",
    "read_points",
    "score",
    "validate",
]
