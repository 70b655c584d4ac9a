"""How far predictions are from measurements: by kind, by group of LLMs, by series."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kvtrace.cost.efficiency import EfficiencyTable
from kvtrace.cost.validation.points import read_points
from kvtrace.cost.validation.predict import Prediction, predict

HIT_TOLERANCE = 0.05
"""Hit ratios count as right within this much, or the point's own trust if that is more."""


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of a group of points."""

    n: int
    predicted: int
    median_error: float | None
    """Of |predicted / measured - 1|; null without a prediction."""
    p90_error: float | None
    within_tolerance: int
    """Predictions inside the point's own trust."""
    signs: int
    """Predictions with a side to be on."""
    signs_right: int


@dataclass(frozen=True, slots=True)
class Validation:
    """All points of a file with their predictions, and the scores of their groups."""

    path: str
    predictions: tuple[Prediction, ...]
    kinds: dict[str, Score]
    groups: dict[str, Score]
    """Kinds of prefill and decode, dense LLMs apart from mixtures of experts."""
    series: dict[str, Score]

    def document(self) -> dict[str, object]:
        """The same as JSON's values."""
        return {
            "schema_version": 1,
            "kinds": {name: asdict(score) for name, score in self.kinds.items()},
            "groups": {name: asdict(score) for name, score in self.groups.items()},
            "series": {name: asdict(score) for name, score in self.series.items()},
            "points": [_entry(one) for one in self.predictions],
        }


def validate(path: Path, table: EfficiencyTable | None = None) -> Validation:
    """Predictions of all points of a file, scored.

    Raises:
        InputError: the file cannot be read as validation points.
    """
    found = tuple(predict(point, table) for point in read_points(path))
    return Validation(
        path=str(path),
        predictions=found,
        kinds=_scores(found, lambda one: one.point.kind),
        groups=_scores(found, _group),
        series=_scores(found, lambda one: f"{one.point.kind}/{one.point.series or '-'}"),
    )


def score(predictions: Sequence[Prediction]) -> Score:
    """The errors of some predictions."""
    errors = sorted(one.error for one in predictions if one.error is not None)
    signs = [one.is_sign_right for one in predictions if one.is_sign_right is not None]
    return Score(
        n=len(predictions),
        predicted=sum(one.predicted is not None for one in predictions),
        median_error=statistics.median(errors) if errors else None,
        p90_error=_quantile(errors, 0.9) if errors else None,
        within_tolerance=sum(_is_within(one) for one in predictions),
        signs=len(signs),
        signs_right=sum(signs),
    )


def _scores(
    found: Sequence[Prediction], key: Callable[[Prediction], str | None]
) -> dict[str, Score]:
    groups: dict[str, list[Prediction]] = {}
    for one in found:
        name = key(one)
        if name is not None:
            groups.setdefault(name, []).append(one)
    return {name: score(groups[name]) for name in sorted(groups)}


def _group(one: Prediction) -> str | None:
    if one.is_moe is None or not one.point.kind.startswith(("prefill", "decode")):
        return None
    return f"{one.point.kind} {'experts' if one.is_moe else 'dense'}"


def _is_within(one: Prediction) -> bool:
    if one.predicted is None:
        return False
    allowed = (one.point.tol_rel or 0.0) * abs(one.point.value)
    if one.point.kind == "replay_hit":
        allowed = max(HIT_TOLERANCE, allowed)
    return abs(one.predicted - one.point.value) <= allowed + 1e-12


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, linear between ranks."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _entry(one: Prediction) -> dict[str, object]:
    point = one.point
    entry: dict[str, object] = {
        "id": point.id,
        "series": point.series,
        "kind": point.kind,
        "metric": point.metric,
        "unit": point.unit,
        "measured": point.value,
        "predicted": one.predicted,
    }
    if one.reason is not None:
        return {**entry, "reason": one.reason}
    entry["error"] = one.error
    entry["within_tolerance"] = _is_within(one)
    if one.is_sign_right is not None:
        entry["sign_right"] = one.is_sign_right
    if one.assumes:
        entry["assumes"] = list(one.assumes)
    return entry
