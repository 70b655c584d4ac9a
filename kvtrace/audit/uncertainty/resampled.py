"""What one replay leaves open because the log holds these sessions and not others."""

from __future__ import annotations

import math
from typing import Final

from kvtrace.audit.thresholds import FLEET_BUSY_SHARE
from kvtrace.audit.uncertainty.quantiles import estimate, quantile
from kvtrace.audit.uncertainty.record import Spread
from kvtrace.audit.uncertainty.responses import extra_per_request, freed_per_request
from kvtrace.audit.uncertainty.sessions import Units, draw, resampled_sums
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray

_BATCHES: Final = 8
"""Of the draws: the spread between batches is the error of a quantile."""
_NAMES: Final = {
    "sessions": "sessions drawn again, whole",
    "conversations": "conversations drawn again, whole (no session ids in the log)",
    "time_blocks": "blocks of time drawn again, whole (neither sessions nor conversations known)",
}


def resampled_spreads(
    pool: ReplayResult, rival: ReplayResult, units: Units, seed: int, *, span_s: float
) -> list[Spread]:
    """Hit tokens beyond the rival and freed instances, over draws of whole sessions."""
    counts = draw(units, seed)
    says = (
        f"{_NAMES[units.unit]}: {len(counts):,} draws of {units.count:,}; constants at the middle"
    )
    extra, freed = extra_per_request(pool, rival), freed_per_request(pool, rival)
    per_instance = span_s * FLEET_BUSY_SHARE.value
    return [
        _spread(
            "reusable_tokens_beyond_local",
            "tokens that the pool adds beyond the best option without one",
            "tokens",
            (extra, resampled_sums(extra, units, counts)),
            seed,
            says,
        ),
        _spread(
            "freed_instances",
            "instances that the freed prefill time is worth, before rounding",
            "instances",
            (freed / per_instance, resampled_sums(freed, units, counts) / per_instance),
            seed,
            says,
        ),
    ]


def _spread(
    ident: str,
    title: str,
    unit: str,
    values: tuple[FloatArray, FloatArray],
    seed: int,
    says: str,
) -> Spread:
    per_request, sums = values
    batches = sums.reshape(_BATCHES, -1)
    low, middle, high = (
        estimate(batches, quantile(share), point=None, seed=seed) for share in (0.1, 0.5, 0.9)
    )
    return Spread(
        id=ident,
        title=title,
        unit=unit,
        middle=math.fsum(per_request.tolist()),
        p10=low.value,
        p50=middle.value,
        p90=high.value,
        p10_error=low.error,
        p90_error=high.error,
        method="resampled",
        says=says,
    )
