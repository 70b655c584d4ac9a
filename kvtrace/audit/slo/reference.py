"""Today's figures, which the default SLO keeps: of all requests, and of each prompt bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.audit.thresholds import BEYOND_QUANTILE
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import percentiles
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace

BUCKET_QUANTILES: Final = (("p90", 0.9), ("p99", 0.99))
OVERALL: Final = ((0, "mean"), (2, "p90"), (3, "p99"))
"""Places in `percentiles`, and their names."""


@dataclass(frozen=True, slots=True)
class BucketTail:
    """TTFT of one prompt bucket."""

    requests: int
    quantile_s: Mapping[str, float]
    """By `p90` and `p99`; the requests say which of them can be judged."""

    def is_judged(self, quantile: float) -> bool:
        """Enough requests lie beyond it."""
        return self.requests * (1 - quantile) >= BEYOND_QUANTILE.value - 1e-6


@dataclass(frozen=True, slots=True)
class Reference:
    """What an option is compared with; it may have been replayed under another load."""

    title: str
    ttft_s: Mapping[str, float]
    """By `mean`, `p90`, `p99`; what is not known is absent."""
    tpot_s: Mapping[str, float]
    buckets: Mapping[int, BucketTail]
    """By lower bound of the prompt bucket."""


def reference_of(trace: RequestTrace, result: ReplayResult) -> Reference:
    """The figures of `result`, a replay of `trace`."""
    timeline = result.timeline
    return Reference(
        title=result.scenario.title,
        ttft_s=overall(timeline.ttft_s),
        tpot_s=overall(timeline.tpot_s),
        buckets=bucket_tails(trace, timeline.ttft_s),
    )


def overall(seconds: FloatArray) -> dict[str, float]:
    """Mean, p90 and p99, as far as they are known."""
    found = percentiles(seconds)
    return {name: value for at, name in OVERALL if (value := found[at]) is not None}


def bucket_tails(trace: RequestTrace, ttft_s: FloatArray) -> dict[int, BucketTail]:
    """The tail of each prompt bucket that has requests, short prompts first."""
    buckets = prompt_buckets(trace)
    tails = {}
    for bucket in np.unique(buckets).tolist():
        mine = ttft_s[buckets == bucket]
        tails[bucket] = BucketTail(
            len(mine),
            {name: float(np.quantile(mine, quantile)) for name, quantile in BUCKET_QUANTILES},
        )
    return tails


def prompt_buckets(trace: RequestTrace) -> IntArray:
    """(requests,) lower bound of each prompt's power-of-two bucket."""
    sizes = trace.prompt_tokens
    _, exponents = np.frexp(sizes.astype(np.float64))
    lower = np.left_shift(1, np.maximum(exponents - 1, 0).astype(np.int64))
    return np.asarray(np.where(sizes > 0, lower, 0), dtype=np.int64)
