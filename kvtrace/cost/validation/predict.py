"""Predicted against measured, one point at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.efficiency import EfficiencyTable
from kvtrace.cost.validation import compute, moves, ratios, replays, rounds, sizes
from kvtrace.cost.validation.bench import Bench, build_bench
from kvtrace.cost.validation.points import Point
from kvtrace.cost.validation.routes import CannotPredictError
from kvtrace.errors import KvtraceError

PREDICTORS: Final[Mapping[str, Callable[[Bench], float]]] = {
    "kv_size": sizes.kv_size,
    "prefill_ttft": compute.prefill_time,
    "prefill_composed": compute.prefill_time,
    "prefill_throughput": compute.prefill_throughput,
    "decode": compute.decode,
    "kv_load": moves.kv_load,
    "link_bw": moves.link_rate,
    "link_chunk_bw": moves.link_rate,
    "speedup": ratios.speedup,
    "crossover": ratios.crossover,
    "economics": ratios.tier_ratio,
    "ab_ratio": ratios.tier_ratio,
    "replay_capacity": sizes.capacity,
    "replay_throughput": replays.throughput,
    "replay_ttft": rounds.mean_ttft,
    "replay_hit": rounds.hit_ratio,
}
SIGNED_KINDS: Final = ("economics", "ab_ratio", "speedup")
"""Kinds whose side of the line matters before their size."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of a point; `predicted` or `reason`, never both."""

    point: Point
    predicted: float | None
    reason: str | None
    assumes: tuple[str, ...]
    """What stands in for cells that the row leaves empty."""
    is_moe: bool | None
    """Whether the LLM is a mixture of experts; null where none is named."""

    @property
    def error(self) -> float | None:
        """|predicted / measured - 1|; null without a prediction, or where zero was measured."""
        if self.predicted is None or not self.point.value:
            return None
        return abs(self.predicted / self.point.value - 1.0)

    @property
    def is_sign_right(self) -> bool | None:
        """Predicted and measured are on the same side; null where the kind has no sides."""
        if self.predicted is None or self.point.kind not in SIGNED_KINDS:
            return None
        point = self.point
        of = point.metric, point.unit, point.kind
        return ratios.sign(self.predicted, *of) == ratios.sign(point.value, *of)


def predict(point: Point, table: EfficiencyTable | None = None) -> Prediction:
    """The model's value of a point in the point's unit, or the reason why there is none."""
    bench = build_bench(point, table)
    predicted, reason = _value(bench)
    assumes: tuple[str, ...] = ()
    if predicted is not None and point.kind in ("economics", "ab_ratio"):
        assumes = ratios.assumed(point)
    return Prediction(point, predicted, reason, assumes, _is_moe(bench))


def _value(bench: Bench) -> tuple[float | None, str | None]:
    point = bench.point
    if point.metric.startswith("ideal_prefix_hit_"):
        return None, "shown, not scored: whole published definitions of an ideal hit differ"
    predictor = PREDICTORS.get(point.kind)
    if predictor is None:
        return None, f"the kind `{point.kind}` is not known; known: {', '.join(PREDICTORS)}"
    try:
        bench.check_ranks()
        value = predictor(bench)
    except CannotPredictError as error:
        return None, str(error)
    except KvtraceError as error:  # the model's own refusals, such as weights that do not fit
        return None, error.message
    if not math.isfinite(value):
        return None, "the model gives no finite value"
    return value, None


def _is_moe(bench: Bench) -> bool | None:
    if not bench.point.model:
        return None
    try:
        return bench.llm.is_moe
    except CannotPredictError:
        return None
