"""Random draws by inversion of uniforms, the same on every platform and numpy release.

Only uniform doubles of numpy's PCG64 are used, and callers round what they draw to whole tokens and
microseconds at once, so that no last bit matters.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from statistics import NormalDist
from typing import Final, Protocol

import numpy as np

from kvtrace.units import NS_PER_S, NS_PER_US

_NORMAL = NormalDist()


class Drawn(Protocol):
    """A distribution by its inverse."""

    def at(self, u: float) -> float:
        """The value below which the share `u` (0..1) of all draws lies."""
        ...


def normal_at(u: float) -> float:
    """The standard normal value below which the share `u` lies, with the ends cut off."""
    return _NORMAL.inv_cdf(min(max(u, 1e-12), 1.0 - 1e-12))


def to_ns(seconds: float) -> int:
    """Seconds as nanoseconds, rounded to whole microseconds so that no last bit matters."""
    return round(seconds * (NS_PER_S // NS_PER_US)) * NS_PER_US


class Draws:
    """The draws of one workload."""

    def __init__(self, seed: int, stream: int) -> None:
        sequence = np.random.SeedSequence(entropy=seed, spawn_key=(stream,))
        self._generator = np.random.Generator(np.random.PCG64(sequence))

    def uniform(self) -> float:
        """A number from 0 to 1, 1 excluded."""
        return float(self._generator.random())

    def below(self, count: int) -> int:
        """A whole number from 0 to `count` - 1."""
        return min(int(self.uniform() * count), count - 1)

    def value(self, drawn: Drawn) -> float:
        """A value of the distribution."""
        return drawn.at(self.uniform())

    def tokens(self, drawn: Drawn) -> int:
        """A value of the distribution as whole tokens, at least 1."""
        return max(1, round(self.value(drawn)))

    def geometric(self, mean: float, high: int) -> int:
        """A count from 1 with this mean, cut at `high`."""
        if mean <= 1.0:
            return 1
        trials = math.log1p(-self.uniform()) / math.log1p(-1.0 / mean)
        return min(1 + int(trials), high)

    def gap(self, cv: float) -> float:
        """A gap with mean 1 and this coefficient of variation: gamma, exponential at 1, even at 0.

        Source: Marsaglia & Tsang, A simple method for generating gamma variables (2000).
        """
        if cv <= 0.0:
            return 1.0
        if cv == 1.0:
            return -math.log1p(-self.uniform())
        shape = 1.0 / (cv * cv)
        boost = 1.0 if shape >= 1.0 else (1.0 - self.uniform()) ** (1.0 / shape)
        d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = normal_at(self.uniform())
            v = (1.0 + c * x) ** 3
            accept = math.log(max(self.uniform(), 1e-300))
            if v > 0.0 and accept < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return boost * d * v / shape

    def hex_id(self) -> str:
        """32 hexadecimal digits."""
        return "".join(f"{self.below(1 << 16):04x}" for _ in range(8))


class EvenDraws:
    """Draws that fill a distribution evenly: each value lands in the widest gap, more or less."""

    def __init__(self, draws: Draws, step: float) -> None:
        self._share = draws.uniform()
        self._step = step

    def value(self, drawn: Drawn) -> float:
        """A value of the distribution."""
        self._share = (self._share + self._step) % 1.0
        return drawn.at(self._share)

    def tokens(self, drawn: Drawn) -> int:
        """A value of the distribution as whole tokens, at least 1."""
        return max(1, round(self.value(drawn)))


STEPS: Final = (0.7548776662466927, 0.5698402909980532, 0.6180339887498949, 0.4142135623730951)
"""Of even draws that shall not follow one another: the first two fill the plane.

Source: M. Roberts, The unreasonable effectiveness of quasirandom sequences (R2), 2018.
"""


class Popularity:
    """Which of several things is chosen, by weight."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._sums = list(accumulate(weights))

    def pick(self, draws: Draws) -> int:
        """The index of one of them."""
        u = draws.uniform() * self._sums[-1]
        return min(bisect_right(self._sums, u), len(self._sums) - 1)


def zipf_weights(count: int, exponent: float) -> list[float]:
    """Weights of `count` things by rank: 1 / rank^exponent; 0 makes them equal."""
    return [(rank + 1.0) ** -exponent for rank in range(count)]
