"""Bytes behind a printed size: `0.5938 gb` is GiB, rounded, and so is the rate beside it.

KV bytes of a token are a whole number with many factors of two (layers × heads × head size ×
bytes), so the two rounded values often leave one such number only.
"""

from __future__ import annotations

from decimal import Decimal
from math import ceil, floor
from typing import Final, NamedTuple

_GIB: Final = Decimal(2**30)
_MS_PER_S: Final = 1000
_SURE: Final = 8
"""A power of two this many times the width of what is possible is there once by chance at most one
time in eight."""
_MAX_TOKEN_BYTES: Final = 2**31


class PrintedSize(NamedTuple):
    """`size: x gb, cost y ms, throughput: z GB/s`, as printed."""

    gib: Decimal
    cost_ms: Decimal
    gib_per_s: Decimal

    def moved_bytes(self, tokens: int) -> int:
        """The bytes of a move of `tokens`: exact where bytes a token can only be one number."""
        token_bytes = self.token_bytes(tokens)
        return int(self.gib * _GIB) if token_bytes is None else token_bytes * tokens

    def token_bytes(self, tokens: int) -> int | None:
        """Bytes a token of one worker; None where the print is too coarse to say."""
        if tokens <= 0 or self.gib <= 0:
            return None
        low, high = self._bounds()
        first, last = ceil(low / tokens), floor(high / tokens)
        if not 0 < first <= last <= _MAX_TOKEN_BYTES:
            return None
        roundest, power = _roundest(first, last)
        is_sure = first == last or power >= _SURE * (last - first + 1)
        return roundest if is_sure else None

    def _bounds(self) -> tuple[Decimal, Decimal]:
        """What the bytes can be after both roundings."""
        low, high = (side * _GIB for side in _rounded_from(self.gib))
        if self.cost_ms > 0 and self.gib_per_s > 0:
            rate, cost = _rounded_from(self.gib_per_s), _rounded_from(self.cost_ms)
            by_rate = [rate[side] * cost[side] * _GIB / _MS_PER_S for side in (0, 1)]
            low, high = max(low, by_rate[0]), min(high, by_rate[1])
        return low, high


def _rounded_from(value: Decimal) -> tuple[Decimal, Decimal]:
    """The smallest and largest number that prints as this."""
    exponent = value.as_tuple().exponent
    half = Decimal((0, (5,), (exponent if isinstance(exponent, int) else 0) - 1))
    return value - half, value + half


def _roundest(first: int, last: int) -> tuple[int, int]:
    """(the whole number between the two with most factors of two, that power of two)."""
    power = 1
    while ceil(first / (2 * power)) * 2 * power <= last:
        power *= 2
    return ceil(first / power) * power, power
