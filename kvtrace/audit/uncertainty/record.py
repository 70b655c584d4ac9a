"""What the record holds of the uncertainty of its verdict."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvtrace.audit.quantity import Quantity

Method = Literal["surrogate", "direct", "exact", "resampled", "ends"]
"""surrogate: a polynomial fitted to replays at sampled inputs; direct: the replays themselves;
exact: arithmetic of sampled prices; resampled: one replay, its sessions drawn again; ends: nothing
but the ends of each input alone."""


class Spread(msgspec.Struct, kw_only=True):
    """How a carrying number spreads over all inputs that are open."""

    id: str
    title: str
    unit: str
    middle: float | None
    """All inputs at their values; null: unknown."""
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    p10_error: float | None = None
    """Standard error of the sampling."""
    p90_error: float | None = None
    method: Method
    left_out_error: float | None = None
    """Of the surrogate: root mean square error of points left out, over the middle; null: none was
    fitted."""
    says: str = ""
    """How it was come by, for people."""


class OpenInput(msgspec.Struct, kw_only=True):
    """One uncertain input: its range, what it does alone, and what knowing it is worth."""

    id: str
    title: str
    unit: str
    low: float
    value: float
    high: float
    distribution: Literal["triangular", "log_uniform", "lognormal", "resampled"]
    source: str
    kind: Literal["measured", "modelled", "spec", "fitted", "assumed", "given"]
    net_at_low: float
    """USD a month with this input at its low, all others at their value."""
    net_at_high: float
    switch_value: float | None = None
    """Where the sign of the net value changes, nearest to `value`; null: not within the range."""
    switch_between: list[float] | None = None
    """Two replayed values between which the sign changes, by bisection."""
    worth_usd_per_month: float | None = None
    """What knowing it before deciding is worth; null: not sampled."""
    worth_error: float | None = None
    """Standard error of that."""
    settle: str = ""
    """What would settle it."""
    line: str = ""
    """The flag, command or line of a file that states it, to be pasted."""


class Uncertainty(msgspec.Struct, kw_only=True):
    """How sure the verdict's money is: the weighed pool against the best option without one."""

    option: str
    rival: str
    net_middle: float
    """USD a month: whole instances that replays give back at their price, less the pool."""
    p_pays: float | None = None
    """Share of the samples in which the pool saves more than it costs; null: not sampled."""
    p_pays_error: float | None = None
    """Standard error of that."""
    threshold: Quantity | None = None
    """What `p_pays` is held against."""
    spreads: list[Spread]
    inputs: list[OpenInput]
    """The widest swing of the net value first."""
    kept: list[str] = []
    """Inputs that stayed at their value, with the reason, for people."""
    worth_of_all: float | None = None
    """USD a month that knowing all inputs before deciding would be worth."""
    replays: int = 0
    """Made for this, beside those of the options."""
    samples: int = 0
    resampled: Literal["sessions", "conversations", "time_blocks"] | None = None
    """What was drawn as a whole."""
    resampled_units: int = 0
    seed: int = 0
    notes: list[str] = []
    """What these numbers do not hold, for people."""
