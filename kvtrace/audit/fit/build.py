"""Predicted TTFT and prefill of the running system against what its log measured.

Predicted: the replay of the option that stands for the running system, with its queue and batches.
It errs by the prices of prefill and moves, and by what it does not know of the running system too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from kvtrace.audit.fit.bins import prompt_buckets
from kvtrace.audit.fit.record import Fit, FitBucket, Says
from kvtrace.audit.logged import LoggedRequests
from kvtrace.audit.slo.fleets import OBSERVED, TODAY
from kvtrace.audit.thresholds import ENOUGH_IN_FIT, FIT_CLOSE
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace


def build_fits(
    trace: RequestTrace | None,
    results: Sequence[ReplayResult],
    logged: LoggedRequests | None,
    *,
    is_raised: bool,
) -> list[Fit]:
    """TTFT and prefill; empty where the running system was not replayed.

    `is_raised`: the replayed load is not that of the log, so that its queues are not, either.
    """
    by_id = {result.scenario.option_id: result for result in results}
    deployed = next((by_id[ident] for ident in (OBSERVED, TODAY) if ident in by_id), None)
    if trace is None or not trace.requests or deployed is None or logged is None:
        return []
    buckets = prompt_buckets(trace.prompt_tokens)
    timeline = deployed.timeline
    return [
        _fit("ttft", timeline.ttft_s, logged.ttft_s, buckets, deployed, is_other=is_raised),
        _fit("prefill", timeline.prefill_s, logged.prefill_s, buckets, deployed, is_other=False),
    ]


def _fit(
    what: Literal["ttft", "prefill"],
    predicted_s: FloatArray,
    observed_s: FloatArray,
    buckets: IntArray,
    deployed: ReplayResult,
    *,
    is_other: bool,
) -> Fit:
    known = np.flatnonzero((observed_s > 0) & ~np.isnan(predicted_s) & (not is_other))
    ratios = predicted_s[known] / observed_s[known]
    p10, p50, p90 = (
        (float(one) for one in np.quantile(ratios, (0.1, 0.5, 0.9)))
        if len(known)
        else (None, None, None)
    )
    found = [
        _bucket(int(bucket), known[buckets[known] == bucket], predicted_s, observed_s)
        for bucket in np.unique(buckets[known])
    ]
    return Fit(
        what=what,
        option=deployed.scenario.option_id,
        title=deployed.scenario.title,
        requests=len(known),
        of_requests=len(predicted_s),
        ratio_p10=p10,
        ratio_p50=p50,
        ratio_p90=p90,
        says="other_load" if is_other else _says(p50, found),
        tolerance=FIT_CLOSE.value,
        buckets=found,
    )


def _says(ratio: float | None, buckets: Sequence[FitBucket]) -> Says:
    if ratio is None:
        return "nothing_measured"
    judged = [one.ratio_p50 for one in buckets if one.requests >= ENOUGH_IN_FIT.value]
    if _is_close(ratio):
        return "close" if all(map(_is_close, judged)) else "uneven"
    return "too_fast" if ratio < 1.0 else "too_slow"


def _is_close(ratio: float) -> bool:
    return abs(ratio - 1.0) <= FIT_CLOSE.value


def _bucket(
    bucket: int, inside: IntArray, predicted_s: FloatArray, observed_s: FloatArray
) -> FitBucket:
    predicted, observed = predicted_s[inside], observed_s[inside]
    predicted_p50, predicted_p90 = np.quantile(predicted, (0.5, 0.9))
    observed_p50, observed_p90 = np.quantile(observed, (0.5, 0.9))
    return FitBucket(
        prompt_bucket=bucket,
        requests=len(inside),
        predicted_p50_s=float(predicted_p50),
        predicted_p90_s=float(predicted_p90),
        observed_p50_s=float(observed_p50),
        observed_p90_s=float(observed_p90),
        ratio_p50=float(np.median(predicted / observed)),
    )
