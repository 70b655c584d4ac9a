"""An uncertain input: its range, its source, and how values lie between low and high."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from kvtrace.cost.evidence import Constant
from kvtrace.schema.arrays import FloatArray

Distribution = Literal["triangular", "log_uniform", "lognormal", "resampled"]
"""triangular: between low and high, most often at the value. log_uniform: every factor between low
and high alike, for ranges of more than a decade. lognormal: around one, low and high are its 5th
and 95th percentile. resampled: drawn from the sessions of the trace."""
Kind = Literal["measured", "modelled", "spec", "fitted", "assumed", "given"]
DECADE: Final = 10.0
"""A range of more than this factor is log-uniform: nobody knows the order of magnitude."""
NORMAL_P95: Final = 1.6448536269514722
"""95th percentile of the standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """One input with low ≤ value ≤ high in its unit."""

    id: str
    """As in the record's assumptions."""
    title: str
    unit: str
    low: float
    value: float
    high: float
    distribution: Distribution
    kind: Kind
    source: str
    settle: str = ""
    """What would settle it, for people."""
    line: str = ""
    """The flag or the line of a file that states it, to be pasted."""

    def at(self, shares: FloatArray) -> FloatArray:
        """Values at these shares (0..1) of the distribution: its quantile function."""
        if self.distribution == "log_uniform":
            return np.asarray(self.low * (self.high / self.low) ** shares, dtype=np.float64)
        if self.distribution == "lognormal":
            from scipy.special import ndtri

            sigma = math.log(self.high / self.value) / NORMAL_P95
            safe = np.clip(shares, 1e-9, 1 - 1e-9)
            return np.asarray(self.value * np.exp(sigma * ndtri(safe)), dtype=np.float64)
        return _triangular(shares, self.low, self.value, self.high)

    def coordinate(self, values: FloatArray) -> FloatArray:
        """Low as -1 and high as +1; by factors where the distribution is one of factors."""
        if self.distribution in ("log_uniform", "lognormal"):
            width = math.log(self.high / self.low)
            return np.asarray(2.0 * np.log(values / self.low) / width - 1.0, dtype=np.float64)
        return np.asarray(2.0 * (values - self.low) / (self.high - self.low) - 1.0)


def _triangular(shares: FloatArray, low: float, mode: float, high: float) -> FloatArray:
    """Formula: low + sqrt(u (high - low) (mode - low)) below the mode, its mirror above."""
    width = high - low
    below = low + np.sqrt(shares * width * (mode - low))
    above = high - np.sqrt((1.0 - shares) * width * (high - mode))
    return np.asarray(np.where(shares < (mode - low) / width, below, above), dtype=np.float64)


def unknown_of(constant: Constant, *, settle: str = "", line: str = "") -> Unknown | None:
    """The constant as an input; null where it has no range."""
    low = constant.value if constant.low is None else constant.low
    high = constant.value if constant.high is None else constant.high
    if high <= low:
        return None
    is_wide = low > 0 and high / low > DECADE
    return Unknown(
        id=constant.id,
        title=constant.title,
        unit=constant.unit,
        low=low,
        value=constant.value,
        high=high,
        distribution="log_uniform" if is_wide else "triangular",
        kind=constant.kind,
        source=f"{constant.source} ({constant.as_of})" if constant.as_of else constant.source,
        settle=settle,
        line=line,
    )
