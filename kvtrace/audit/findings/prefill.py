"""Measured prefill of requests with hits against recomputing them: do the hits pay in time?

The measurement is from first scheduled to first token; the model gives the time to recompute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.findings.check import MS_PER_S, Evidence, Hit, measured, modelled
from kvtrace.audit.findings.limits import ENOUGH_IN_BUCKET, HIT_RATIO_RISE, MEASURED_OVER_RECOMPUTE
from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import count, number, rows_of, whole_window
from kvtrace.audit.words import counted, percent
from kvtrace.replay.scenario import PrefillTime
from kvtrace.units import format_seconds

PREFILL_TABLE: Final = "replay/measured_prefill"
_QUERY: Final = "latency/prefill_by_reuse"
HIGH: Final = "high"


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """Requests of one prompt bucket and reuse class: measured, beside what recomputing takes."""

    prompt_bucket: int
    reuse_class: str
    requests: int
    mean_prompt_tokens: float
    mean_reusable_tokens: float | None
    prefill_p50_s: float
    prefill_p90_s: float | None
    recompute_all_s: float
    """Model: the whole mean prompt, nothing cached."""
    recompute_below_hbm_s: float | None
    """Model: what HBM missed, at the hit ratio that the engine prints for HBM; null for little
    reuse (HBM cannot hit that much of it), and where no tier below HBM served anything."""

    @property
    def over_all(self) -> float | None:
        """Measured p50 over recomputing everything."""
        return ratio(self.prefill_p50_s, self.recompute_all_s)

    @property
    def over_below_hbm(self) -> float | None:
        """Measured p50 over recomputing what HBM missed."""
        return ratio(self.prefill_p50_s, self.recompute_below_hbm_s)


def hbm_hit_ratio(queries: Mapping[str, ResultOfQuery]) -> float | None:
    """HBM hit ratio as the engine prints it, mean of its samples; null without hits below HBM."""
    window = whole_window(queries)
    external = number(window, "engine_external_hit_ratio")
    if external is None or external < HIT_RATIO_RISE.value:
        return None
    return number(window, "engine_prefix_hit_ratio")


def prefill_rows(
    queries: Mapping[str, ResultOfQuery], prefill: PrefillTime | None
) -> list[PrefillRow]:
    """The rows of the query with the model's times; none without a model.

    Formula: T(n | 0) and T((1 - L)·n | L·n), n the mean prompt, L the HBM hit ratio. Prefill time
    is convex, so T at the mean is below the mean of T.
    """
    if prefill is None:
        return []
    hbm = hbm_hit_ratio(queries)
    found = []
    for row in rows_of(queries, _QUERY):
        bucket, requests = count(row, "prompt_bucket"), count(row, "requests")
        tokens, p50 = number(row, "mean_prompt_tokens"), number(row, "prefill_p50_ms")
        p90 = number(row, "prefill_p90_ms")
        if bucket is None or requests is None or tokens is None or p50 is None:
            continue
        found.append(
            PrefillRow(
                prompt_bucket=bucket,
                reuse_class=str(row.get("reuse_class")),
                requests=requests,
                mean_prompt_tokens=tokens,
                mean_reusable_tokens=number(row, "mean_reusable_tokens"),
                prefill_p50_s=p50 / MS_PER_S,
                prefill_p90_s=None if p90 is None else p90 / MS_PER_S,
                recompute_all_s=prefill.prefill_s(tokens, 0),
                recompute_below_hbm_s=None
                if hbm is None or row.get("reuse_class") != HIGH
                else prefill.prefill_s((1 - hbm) * tokens, hbm * tokens),
            )
        )
    return found


def hits_not_faster_measured(evidence: Evidence) -> Hit | None:
    """Buckets in which requests with hits take as long as recomputing, as measured."""
    rows = [
        row
        for row in prefill_rows(evidence.queries, evidence.prefill)
        if row.reuse_class == HIGH and row.requests >= ENOUGH_IN_BUCKET.value
    ]
    limit = MEASURED_OVER_RECOMPUTE.value
    beyond_all = [row for row in rows if (row.over_all or 0.0) >= limit]
    slow = beyond_all or [row for row in rows if (row.over_below_hbm or 0.0) >= limit]
    if not slow:
        return None
    hbm = None if beyond_all else hbm_hit_ratio(evidence.queries)
    return Hit(
        severity="warning",
        confidence="medium" if beyond_all else "low",
        message=_message(slow, hbm),
        evidence=tuple(
            one
            for row in slow
            for one in (
                measured(f"prefill_p50_s:{row.prompt_bucket}", row.prefill_p50_s, "s", _QUERY),
                modelled(f"recompute_s:{row.prompt_bucket}", _recompute(row, hbm), "s", "model"),
                modelled(
                    f"measured_over_recompute:{row.prompt_bucket}",
                    ratio(row.prefill_p50_s, _recompute(row, hbm)),
                    "times",
                    f"{_QUERY} over the model",
                ),
            )
        ),
        table=PREFILL_TABLE,
    )


def _recompute(row: PrefillRow, hbm: float | None) -> float | None:
    return row.recompute_all_s if hbm is None else row.recompute_below_hbm_s


def _message(slow: list[PrefillRow], hbm: float | None) -> str:
    what = (
        "the whole prompt"
        if hbm is None
        else f"what HBM misses ({percent(1 - hbm)} of a prompt, by the engine's own HBM hit ratio)"
    )
    buckets = "; ".join(
        f"{counted(row.requests, 'request')} of {row.prompt_bucket:,} to "
        f"{2 * row.prompt_bucket:,} tokens: {format_seconds(row.prefill_p50_s)} (p50, measured) "
        f"against {format_seconds(_recompute(row, hbm) or 0.0)} (modelled)"
        for row in slow
    )
    caveat = (
        "other work on the GPU lengthens the measured time too"
        if hbm is None
        else "the HBM hits of single requests are unknown, and other work on the GPU lengthens the "
        "measured time too"
    )
    return (
        "Where at least half of the prompt is reused, first scheduled to first token is no shorter "
        f"than recomputing {what}: {buckets}. The hits of the running system are not faster there; "
        f"{caveat}"
    )
