"""What a synthetic service looks like: workloads, how their sessions arrive, and what they send."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from kvtrace.synth.draws import normal_at


@dataclass(frozen=True, slots=True)
class Spread:
    """A log-normal spread, cut to `[low, high]`."""

    median: float
    sigma: float
    """Standard deviation of the logarithm; 0 gives the median every time."""
    low: float
    high: float

    def at(self, u: float) -> float:
        """The value below which the share `u` lies."""
        value = self.median * math.exp(self.sigma * normal_at(u))
        return min(max(value, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """An empirical distribution: straight lines between points of its inverse."""

    shares: tuple[float, ...]
    """Ascending, from 0 to 1."""
    values: tuple[float, ...]
    """As many, not descending."""

    def at(self, u: float) -> float:
        """The value below which the share `u` lies."""
        right = min(max(bisect_right(self.shares, u), 1), len(self.shares) - 1)
        low, high = self.shares[right - 1], self.shares[right]
        part = (u - low) / (high - low) if high > low else 0.0
        return self.values[right - 1] + part * (self.values[right] - self.values[right - 1])


Distribution = Spread | Quantiles


@dataclass(frozen=True, slots=True)
class Prefix:
    """A text that many sessions begin with: a system prompt, a list of tools, a document."""

    tokens: int
    """Of the whole prefix, that of `within` included."""
    weight: float
    """How often it is chosen, against the weights of the others."""
    within: int | None = None
    """Index of an earlier prefix that it begins with."""
    text: str | None = None
    """Prefixes of equal text are one in all workloads; None: the workload's own."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How the rate of arrivals goes up and down."""

    weights: tuple[float, ...]
    """Relative rates of equal parts of the period."""
    period_s: float
    """The rates start again after this."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of client for one stretch of time."""

    name: str
    start_s: float
    duration_s: float
    """Sessions start inside `[start_s, start_s + duration_s)`; no turn arrives after its end."""
    sessions: int
    arrivals: Literal["poisson", "even", "gamma"]
    """Session starts: sorted uniform draws (Poisson, given the count), evenly spaced, or gaps of a
    gamma distribution with `cv`."""
    turns_mean: float
    """Mean of the geometric number of turns in a session."""
    turns_max: int
    shared_roots: int
    """Distinct shared prefixes (system prompts, tool lists); each session starts with one."""
    root_tokens: Distribution
    first_tokens: Distribution
    """Tokens of the first message, after the shared prefix."""
    turn_tokens: Distribution
    """Tokens of each later message: what the user says or the tool returns."""
    output_tokens: Distribution
    think_s: Distribution
    """From the last token of a reply to the arrival of the session's next turn."""
    context_max_tokens: int
    """A session ends before its prompt would grow past this."""
    cv: float = 1.0
    """Coefficient of variation of the gaps of `gamma`."""
    rhythm: Rhythm | None = None
    """None: the same rate all the time."""
    root_zipf: float = 0.0
    """Popularity of the roots: 1 / rank^this."""
    prefixes: tuple[Prefix, ...] = ()
    """Shared prefixes one by one, instead of `shared_roots`."""
    unshared_weight: float = 0.0
    """Against the weights of `prefixes`: sessions that begin with none."""
    keeps_replies: bool = True
    """The next prompt holds the reply; else `turn_tokens` is all that it grows by."""
    pause_from: Literal["reply", "arrival"] = "reply"
    """Where `think_s` counts from: the last token of the turn before, or its arrival. A turn never
    arrives before the reply to the turn before."""
    turns: Distribution | None = None
    """Turns of a session; None: geometric, by `turns_mean`."""
    turns_min: int = 1
    first_holds_prefix: bool = False
    """`first_tokens` is the whole first prompt; a longer prefix is cut to it."""
    cuts_at_end: bool = True
    """Whether turns that would arrive after the end are not sent."""
    stratified: bool = False
    """Lengths and turns fill their distributions evenly: a short trace has their quantiles too."""
    sharing: float = 0.0
    """-1 .. 1. Above 0: this share of the first message is a text that all sessions of its root
    share. Below 0: so many sessions have a root of their own. See `reuse.py`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole synthetic trace: same profile, same bytes."""

    seed: int
    block_size_tokens: int
    workloads: tuple[Workload, ...]
    nominal_reply_s: float = 6.0
    """Assumed time from arrival to last token when no engine is simulated (open loop)."""


def sample_profile(seed: int) -> Profile:
    """The small service of `sample_traces/`: chats for 70 minutes, agents from minute 35."""
    chats = Workload(
        name="chat",
        start_s=0.0,
        duration_s=4200.0,
        sessions=500,
        arrivals="poisson",
        turns_mean=1.55,
        turns_max=8,
        shared_roots=2,
        root_tokens=Spread(median=820, sigma=0.15, low=600, high=1100),
        first_tokens=Spread(median=2600, sigma=0.6, low=150, high=9000),
        turn_tokens=Spread(median=1300, sigma=0.7, low=60, high=6000),
        output_tokens=Spread(median=170, sigma=0.6, low=16, high=700),
        think_s=Spread(median=45, sigma=0.7, low=8, high=240),
        context_max_tokens=16_000,
    )
    agents = Workload(
        name="agent",
        start_s=2100.0,
        duration_s=2100.0,
        sessions=76,
        arrivals="poisson",
        turns_mean=14.0,
        turns_max=26,
        shared_roots=4,
        root_tokens=Spread(median=8600, sigma=0.1, low=7000, high=10_500),
        first_tokens=Spread(median=3000, sigma=0.5, low=500, high=9000),
        turn_tokens=Spread(median=900, sigma=0.7, low=60, high=4000),
        output_tokens=Spread(median=110, sigma=0.5, low=16, high=400),
        think_s=Spread(median=42, sigma=0.5, low=6, high=150),
        context_max_tokens=31_000,
    )
    return Profile(seed=seed, block_size_tokens=64, workloads=(chats, agents))
