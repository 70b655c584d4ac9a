"""The reuse and KV parts of the record, from their queries; unknown stays null, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.findings.sampling import at_least, sampled_log
from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import BytesDistribution, CurvePoint, Data, Kv, Reuse
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.verdict.words import WHY_UNKNOWN
from kvtrace.audit.view import count, number, rows_of, summary_of

_SAMPLES: Final = "samples/over_time"
_ENGINE_RATIOS: Final = {
    "prefix_hit_ratio": "HBM hit ratio",
    "external_prefix_hit_ratio": "hit ratio below HBM",
}


def build_reuse_part(queries: Mapping[str, ResultOfQuery], data: Data) -> Reuse:
    """What could be reused and what a cache of each capacity would catch."""
    row = summary_of(queries, "reuse/summary")
    is_known = data.evidence_grade == "A" and count(row, "reusable_blocks") is not None
    if not is_known:
        row = {}
    observed = _observed_ratio(queries)
    curve = _curve(queries) if is_known else []
    return Reuse(
        reusable_ratio_blocks=number(row, "reusable_ratio_blocks"),
        reusable_ratio_tokens=number(row, "reusable_ratio_tokens"),
        reusable_ratio_requests_mean=number(row, "reusable_ratio_requests_mean"),
        reusable_ratio_full_blocks=number(row, "reusable_ratio_full_blocks"),
        requests_with_reuse_ratio=number(row, "requests_with_reuse_ratio"),
        reusable_blocks=count(row, "reusable_blocks"),
        reusable_tokens=count(row, "reusable_tokens"),
        observed_hit_ratio_tokens=observed,
        hit_curve=curve,
        knee=find_knee(curve),
        unknown_reason=None if is_known else WHY_UNKNOWN[data.evidence_grade],
        observed_unknown_reason=_why_not_observed(queries) if observed is None else None,
        lower_bound_reason=at_least(sampled_log(data.sources, data.notes)) if is_known else None,
    )


def build_kv_part(
    queries: Mapping[str, ResultOfQuery], *, llm: str, kv_dtype: str, bytes_per_token: float
) -> Kv:
    """KV bytes of the prompts under the LLM shape."""
    row = summary_of(queries, "kv/summary")
    return Kv(
        llm=llm,
        kv_dtype=kv_dtype,
        bytes_per_token=bytes_per_token,
        bytes_requested=number(row, "kv_bytes_requested"),
        bytes_requested_block_rounded=number(row, "kv_bytes_block_rounded"),
        bytes_distinct=number(row, "kv_bytes_distinct"),
        distribution=BytesDistribution(
            mean=number(row, "kv_bytes_mean"),
            p50=number(row, "kv_bytes_p50"),
            p90=number(row, "kv_bytes_p90"),
            p99=number(row, "kv_bytes_p99"),
            maximum=number(row, "kv_bytes_max"),
        ),
    )


def _observed_ratio(queries: Mapping[str, ResultOfQuery]) -> float | None:
    """cached_tokens / prompt_tokens over the requests that know both, from `reuse/definitions`."""
    for row in rows_of(queries, "reuse/definitions"):
        if row.get("definition") == "cached_tokens_observed":
            return ratio(number(row, "numerator"), number(row, "denominator"))
    return None


def _why_not_observed(queries: Mapping[str, ResultOfQuery]) -> str:
    """No request says what was cached; name the engine-wide ratios where there are any."""
    metrics = {row.get("metric") for row in rows_of(queries, _SAMPLES)}
    named = [title for metric, title in _ENGINE_RATIOS.items() if metric in metrics]
    if not named:
        return "per request unknown: no source counts the cached tokens of a request"
    return (
        f"per request unknown; engine-wide samples ({' and '.join(named)}): see "
        "latency/hit_and_ttft_over_time and samples/over_time"
    )


def find_knee(curve: Sequence[CurvePoint]) -> CurvePoint | None:
    """The first point whose hit ratio is less than `LITTLE` below the highest of the curve."""
    ratios = [point.hit_ratio_tokens or 0.0 for point in curve]
    most = max(ratios, default=0.0)
    near = (p for p, hit in zip(curve, ratios, strict=True) if hit and most - hit < LITTLE.value)
    return next(near, None)


def _curve(queries: Mapping[str, ResultOfQuery]) -> list[CurvePoint]:
    points = []
    for row in rows_of(queries, "reuse/capacity_curve"):
        capacity = count(row, "capacity_blocks")
        if capacity is None:
            continue
        points.append(
            CurvePoint(
                capacity_blocks=capacity,
                capacity_bytes=number(row, "capacity_bytes"),
                hit_ratio_blocks=number(row, "hit_ratio_blocks"),
                hit_ratio_tokens=number(row, "hit_ratio_tokens"),
            )
        )
    return points
