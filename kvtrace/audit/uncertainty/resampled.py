"""What one replay leaves open because the log holds these sessions and not others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from kvtrace.audit.thresholds import FLEET_BUSY_SHARE
from kvtrace.audit.uncertainty.quantiles import estimate, quantile
from kvtrace.audit.uncertainty.record import Spread
from kvtrace.audit.uncertainty.responses import extra_per_request, freed_per_request
from kvtrace.audit.uncertainty.sessions import Units, draw, resampled_sums
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray, IntArray

_BATCHES: Final = 8
"""Of the draws: the spread between batches is the error of a quantile."""
_NAMES: Final = {
    "sessions": "sessions drawn again, whole",
    "conversations": "conversations drawn again, whole (no session ids in the log)",
    "time_blocks": "blocks of time drawn again, whole (neither sessions nor conversations known)",
}


@dataclass(frozen=True)
class Draws:
    """Sessions drawn again, each as a whole."""

    units: Units
    seed: int

    @cached_property
    def counts(self) -> IntArray:
        """(draws, units) how often each is drawn."""
        return draw(self.units, self.seed)

    @property
    def says(self) -> str:
        """How it was done, for people."""
        drawn = f"{len(self.counts):,} draws of {self.units.count:,}"
        return f"{_NAMES[self.units.unit]}: {drawn}; all else at its value"

    def sums(self, values: FloatArray) -> FloatArray:
        """(draws,) sum over the drawn requests."""
        return resampled_sums(values, self.units, self.counts)

    def spread(self, ident: str, title: str, unit: str, middle: float, drawn: FloatArray) -> Spread:
        """A figure with its percentiles over the draws."""
        batches = drawn.reshape(_BATCHES, -1)
        low, half, high = (
            estimate(batches, quantile(share), point=None, seed=self.seed)
            for share in (0.1, 0.5, 0.9)
        )
        return Spread(
            id=ident,
            title=title,
            unit=unit,
            middle=middle,
            p10=low.value,
            p50=half.value,
            p90=high.value,
            p10_error=low.error,
            p90_error=high.error,
            method="resampled",
            says=self.says,
        )


def reuse_spread(draws: Draws, reusable: IntArray, prompt_tokens: IntArray) -> Spread | None:
    """Reusable over prompt tokens; null where no prompt holds a token."""
    reused, asked = (np.asarray(one, dtype=np.float64) for one in (reusable, prompt_tokens))
    if not asked.sum():
        return None
    return draws.spread(
        "reusable_ratio_tokens",
        "reusable tokens over prompt tokens, unlimited cache",
        "ratio",
        float(reused.sum() / asked.sum()),
        draws.sums(reused) / np.maximum(draws.sums(asked), 1.0),
    )


def pool_spreads(
    draws: Draws, pool: ReplayResult, rival: ReplayResult, *, span_s: float
) -> list[Spread]:
    """Hit tokens beyond the rival and freed instances."""
    extra = extra_per_request(pool, rival)
    freed = freed_per_request(pool, rival) / (span_s * FLEET_BUSY_SHARE.value)
    return [
        draws.spread(
            "reusable_tokens_beyond_local",
            f"tokens that the pool adds beyond {rival.scenario.title}",
            "tokens",
            float(extra.sum()),
            draws.sums(extra),
        ),
        draws.spread(
            "freed_instances",
            "instances that the freed prefill time is worth, before rounding",
            "instances",
            float(freed.sum()),
            draws.sums(freed),
        ),
    ]
