"""What the changes of paired requests show: a sign test, and an interval of their median."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.schema.arrays import FloatArray

_LEVEL: Final = (2.5, 97.5)
"""Percentiles of the interval: 95 %."""
_MOST_RESAMPLES: Final = 1000
_LEAST_RESAMPLES: Final = 200
_MOST_DRAWS: Final = 100_000_000
"""Resamples times pairs that are drawn at most; long logs get fewer resamples."""


@dataclass(frozen=True, slots=True)
class MedianChange:
    """The median of the changes in seconds, with a 95 % interval; nulls without a pair."""

    value: float | None
    low: float | None
    high: float | None
    resamples: int
    block: int
    """Pairs that stay together in a resample."""


def sign_test(slower: int, faster: int) -> float | None:
    """Two-sided p-value of as uneven a split of signs by chance; null without any sign.

    Formula: min(1, 2 P(X <= min(slower, faster))), X ~ Binomial(slower + faster, 1/2), exact.
    Assumes: pairs are independent; requests of one burst share a queue, so that p is too small.
    """
    signs = slower + faster
    if signs == 0:
        return None
    least = min(slower, faster)
    term = math.exp(
        math.lgamma(signs + 1)
        - math.lgamma(least + 1)
        - math.lgamma(signs - least + 1)
        - signs * math.log(2)
    )
    total = 0.0
    for successes in range(least, -1, -1):
        total += term
        if term < total * 1e-17:
            break
        term *= successes / (signs - successes + 1)
    return min(1.0, 2.0 * total)


def median_change(changes_s: FloatArray, *, seed: int) -> MedianChange:
    """The median, and the interval of a block bootstrap over the pairs in their order.

    Blocks of n^(1/3) neighbours are drawn with replacement, since neighbours share a queue
    (Kuensch 1989, moving blocks).
    """
    pairs = len(changes_s)
    if pairs == 0:
        return MedianChange(None, None, None, 0, 0)
    block = max(1, round(pairs ** (1 / 3)))
    resamples = max(_LEAST_RESAMPLES, min(_MOST_RESAMPLES, _MOST_DRAWS // pairs))
    blocks = -(-pairs // block)
    rng = np.random.default_rng(seed)
    within = np.arange(block)
    medians = np.empty(resamples)
    for index in range(resamples):
        starts = rng.integers(0, pairs - block + 1, size=blocks)
        drawn = (starts[:, None] + within).ravel()[:pairs]
        medians[index] = np.median(changes_s[drawn])
    low, high = np.percentile(medians, _LEVEL)
    return MedianChange(float(np.median(changes_s)), float(low), float(high), resamples, block)
