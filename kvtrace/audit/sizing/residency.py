"""How soon a block must be reused to be worth its GB in a tier: the five-minute rule for KV.

Source of the idea: Gray and Putzolu, The 5 Minute Rule for Trading Memory for Disc Accesses and the
10 Byte Rule for Trading Memory for CPU Time, SIGMOD 1987: keep what is used again before the rent
of its memory exceeds the price of bringing it back. Here it is not brought back from a disc but
recomputed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.audit.sizing.tiers import TierPrice
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one tier."""

    price: TierPrice
    residency_s: Range | None
    """Break-even residency, in seconds; null: endless or unknown."""

    @property
    def until_s(self) -> float | None:
        """For how long a block is worth keeping; infinite where the tier is free, null: unknown."""
        if self.price.is_free:
            return math.inf
        return None if self.residency_s is None else self.residency_s.value


def break_even_s(usd_per_gb_hit: Range, usd_per_gb_s: Range) -> Range:
    """Seconds since its last use for which keeping a GB of KV costs what one hit on it is worth.

    Formula: T* = value of a hit on a GB (USD) / price of a GB-second (USD/s); keep a block where it
    is expected back sooner. Interval: the cheapest hit over the dearest tier, and the reverse.
    Assumes: the hit saves the recompute and its move holds no GPU.
    """
    return usd_per_gb_hit / usd_per_gb_s


def residency_rules(
    prices: tuple[TierPrice, ...], value: ReuseValue | None, kv_bytes_per_token: float
) -> tuple[Rule, ...]:
    """One rule per tier; unknown without the worth of a token or a price."""
    return tuple(_rule(price, value, kv_bytes_per_token) for price in prices)


def _rule(price: TierPrice, value: ReuseValue | None, kv_bytes_per_token: float) -> Rule:
    rent = price.usd_per_gb_s
    worth = None if value is None else value.usd_per_gb(kv_bytes_per_token)
    if worth is None or rent is None or rent.low <= 0.0:
        return Rule(price, None)
    return Rule(price, break_even_s(worth, rent))
