"""The verb `cost validate`: the cost model on published measurements, as a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvtrace.api.query_results import to_json
from kvtrace.cost.validation import Prediction, Score, Validation, validate
from kvtrace.report.text.table import text_table

_SCORES = ("points", "predicted", "median error", "P90 error", "in trust", "signs right")


@dataclass(frozen=True, slots=True)
class CostValidation:
    """Predicted against measured for the points of a file."""

    validation: Validation

    def to_json(self) -> str:
        """Scores by kind, group and series, and every point with its value or its reason."""
        return to_json(self.validation.document())

    def summary(self, *, show_points: bool = True) -> list[str]:
        """The scores, every point, and what cannot be predicted with the reasons."""
        found = self.validation
        lines = ["By kind", _score_table("kind", found.kinds)]
        if found.groups:
            lines += ["", "Dense LLMs and mixtures of experts", _score_table("group", found.groups)]
        lines += ["", "By series", _score_table("series", found.series)]
        if show_points:
            lines += ["", "Points", _point_table(found.predictions)]
        return [*lines, *_reasons(found.predictions)]


def cost_validate(points: Path | str) -> CostValidation:
    """Predictions of all points of a CSV file in the columns of validation points.

    Raises:
        InputError: unreadable, a column is missing, or a row cannot be read as it stands.
    """
    return CostValidation(validate(Path(points)))


def _score_table(name: str, scores: Mapping[str, Score]) -> str:
    rows = [
        [
            key,
            score.n,
            score.predicted,
            _percent(score.median_error),
            _percent(score.p90_error),
            score.within_tolerance,
            f"{score.signs_right} of {score.signs}" if score.signs else "",
        ]
        for key, score in scores.items()
    ]
    return text_table((name, *_SCORES), rows)


def _point_table(predictions: tuple[Prediction, ...]) -> str:
    rows = [
        [
            one.point.id,
            one.point.kind,
            one.point.metric,
            _number(one.predicted),
            _number(one.point.value),
            one.point.unit,
            _percent(one.error),
        ]
        for one in predictions
        if one.predicted is not None
    ]
    header = ("id", "kind", "metric", "predicted", "measured", "unit", "error")
    return text_table(header, rows)


def _reasons(predictions: tuple[Prediction, ...]) -> list[str]:
    """Each reason once, with the points that it holds for."""
    found: dict[str, list[str]] = {}
    for one in predictions:
        if one.reason is not None:
            found.setdefault(one.reason, []).append(one.point.id)
    lines = [f"  {reason}: {', '.join(ids)}" for reason, ids in found.items()]
    return ["", "Not predicted", *lines] if lines else []


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
