"""One input at a time: what its ends do to the net value, and where the answer flips."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.audit.uncertainty.unknowns import Unknown

Net = Callable[[float], float]
"""USD a month by the value of one input, all others at their middle."""
_PLACES: Final = 16
"""Equal parts of a range that are looked at for a change of sign."""
_HALVINGS: Final = 60
"""Bisections: the root is then known to 2^-60 of a part."""


@dataclass(frozen=True, slots=True)
class Swing:
    """What one input does alone."""

    unknown: Unknown
    at_low: float
    """USD a month."""
    at_high: float
    switch: float | None
    """The value nearest to the middle at which the sign changes; null: nowhere in the range."""
    between: tuple[float, float] | None = None
    """Replayed values on both sides of a change of sign, where its place was not looked for."""

    @property
    def width(self) -> float:
        """USD a month between both ends."""
        return abs(self.at_high - self.at_low)


def swing(unknown: Unknown, net: Net) -> Swing:
    """Ends and switch point of one input."""
    return Swing(unknown, net(unknown.low), net(unknown.high), switch_point(unknown, net))


def switch_point(unknown: Unknown, net: Net) -> float | None:
    """The value nearest to the middle where `net` changes sign; null: it keeps it in the range.

    A step (a whole instance) is found as well as a smooth root: what is halved is the sign.
    """
    places = sorted({*np.linspace(unknown.low, unknown.high, _PLACES + 1).tolist(), unknown.value})
    signs = [net(place) > 0 for place in places]
    changes = [i for i in range(len(places) - 1) if signs[i] != signs[i + 1]]
    if not changes:
        return None
    nearest = min(changes, key=lambda i: _distance(unknown.value, places[i], places[i + 1]))
    return _bisect(net, places[nearest], places[nearest + 1])


def _distance(value: float, low: float, high: float) -> float:
    return max(low - value, value - high, 0.0)


def _bisect(net: Net, low: float, high: float) -> float:
    is_above = net(low) > 0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (net(middle) > 0) == is_above:
            low = middle
        else:
            high = middle
        if math.isclose(low, high, rel_tol=1e-12):
            break
    return (low + high) / 2


def replayed_swing(
    unknown: Unknown,
    nets: tuple[float, float, float],
    bracket: tuple[float, float] | None = None,
) -> Swing:
    """The swing of an input by its replays at low, value and high (`nets`).

    `bracket`: two values of a bisection by replays, between which the claim changes.
    """
    at_low, middle, at_high = nets
    is_below = (at_low > 0) != (middle > 0)
    if not is_below and (at_high > 0) == (middle > 0):
        return Swing(unknown, at_low, at_high, None)
    half = (unknown.low, unknown.value) if is_below else (unknown.value, unknown.high)
    low, high = sorted(bracket or half)
    return Swing(unknown, at_low, at_high, None, (low, high))
