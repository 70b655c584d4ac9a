"""Sizes, residency rules and break-even points as the record holds them."""

from __future__ import annotations

import msgspec

from kvtrace.audit.quantity import Quantity


class ResidencyRule(msgspec.Struct, kw_only=True):
    """How soon a block must be reused to be worth its GB in a tier."""

    tier: str
    title: str
    price: Quantity | None
    """USD a month for a GB of it; null: no price."""
    residency: Quantity | None
    """Break-even, in seconds; null: endless or unknown."""
    is_endless: bool = False
    """The tier is there and costs nothing: a block is worth keeping as long as it fits."""
    within_tokens: int | None = None
    """Reused tokens that come back within the rule, in this trace."""
    within_ratio_tokens: float | None = None
    """within_tokens / all tokens that are reused after a known time."""
    kept_bytes: float | None = None
    """Mean of what the rule alone would keep."""


class BreakEvenReuse(msgspec.Struct, kw_only=True):
    """The reuse beyond its rival at which a pool's hits are worth its cost."""

    option: str
    title: str
    rival: str
    """The option without a pool that the verdict weighs this pool against."""
    needed: Quantity
    """Of the prompt tokens, 0..; above 1 no reuse is enough."""
    present_ratio_tokens: float
    """What the pool serves beyond the rival in the replays (`extra_hit_tokens` of the option), of
    the prompt tokens; below zero: less than the rival."""
    ceiling_ratio_tokens: float | None
    """What an unlimited cache would serve beyond the rival; null: unknown."""
    load_times: float | None
    """Loads like this one at which the present share is enough: needed / present, at the middle;
    null: it serves no more than the rival."""
    value: Quantity
    """GPU time of what it serves beyond the rival, before rounding to whole instances."""
    cost: Quantity
    """What the pool costs more than the rival."""


class BreakEvenPath(msgspec.Struct, kw_only=True):
    """The effective bandwidth per GPU above which a hit is worth moving over a path."""

    path: str
    title: str
    needed: Quantity | None
    """bytes/s per GPU (B*); null: no rate is enough, fixed seconds alone take longer."""
    given_bytes_per_s: float
    """What the path gives one GPU, when the move is alone."""
    prompt_tokens: int
    """Of the request that it is worked out for: the median request with reuse."""
    cached_tokens: int
    move_s: float
    recompute_s: float


class BreakEvenContention(msgspec.Struct, kw_only=True):
    """How many loads may share a pool's ports until the median hit is slower than recomputing."""

    option: str
    title: str
    link: str
    """The link that all loads share."""
    flows: int | None
    """Most loads at once; 0: the median hit is slower even alone; null: nothing was loaded."""
    mean_in_flight: float
    """Loads at once in the replay, mean."""
    peak_in_flight: float
    """The same, at the moment with most."""


class Sizing(msgspec.Struct, kw_only=True):
    """How large a pool should be, what it must carry, and where it breaks even."""

    numbers: list[Quantity]
    """The three sizes of a pool (smallest that adds hits, recommended, nearly all hits), ports, and
    the worth of a reused token."""
    residency: list[ResidencyRule]
    reuse: list[BreakEvenReuse]
    paths: list[BreakEvenPath]
    contention: list[BreakEvenContention]
    unknown_reason: str | None = None
    """Why there are no sizes."""
