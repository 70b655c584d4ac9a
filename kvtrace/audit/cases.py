"""What the verdict rests on, as plain numbers: so that its rules can be tested by a table."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.audit.ranges import Range
from kvtrace.audit.record import NextMeasurement, Outcome
from kvtrace.audit.thresholds import (
    MIN_REQUESTS,
    MIN_SPAN,
    NET_NEGATIVE_DOMINATES,
    PREFILL_BINDS,
)
from kvtrace.schema.manifest import Grade


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCase:
    """One pooled option, weighed against the best option without a pool; all modelled."""

    option_id: str
    title: str
    extra_hit_tokens: int
    """Tokens that it serves beyond the best option without a pool."""
    saving: Range
    """USD a month; low and value are whole instances, the low is zero where prefill does not bind,
    the high is a bound."""
    unrounded_saving_usd: float
    """USD a month before rounding to whole instances."""
    cost: Range
    """USD a month of what the pool adds."""
    instances_saved: Range
    """Before rounding."""
    is_no_slower: bool
    """p90 and p99 of TTFT are no worse than today's and than those of the best rival."""
    slowdown: str
    """The two numbers behind `is_no_slower`, for people."""
    tail_s: float
    """p99 of TTFT, p90 where there are too few requests; tells equally dear pools apart."""
    net_negative_share: float | None
    """Of its loaded hits; null without any."""
    path_bytes_per_s: float | None = None
    """What the median move got."""
    break_even_bytes_per_s: float | None = None
    """B*: above it a move is faster than recomputing."""

    @property
    def is_faster_than_recompute(self) -> bool:
        """Most of what it loads arrives sooner than it could be recomputed."""
        share = self.net_negative_share
        return share is None or share < NET_NEGATIVE_DOMINATES.value

    @property
    def keeps_slo(self) -> bool:
        """No request class waits longer for the sake of a hit."""
        return self.is_no_slower and self.is_faster_than_recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The most that any cache could be worth: moves are free, capacity is unlimited."""

    instances: Range
    """Instances that the freed prefill time is worth."""
    saving: Range
    """USD a month."""
    what: str
    """What is free in it, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that the verdict rests on; unknown is None."""

    grade: Grade
    requests: int
    span_s: float | None
    prompt_tokens: int | None
    reusable_tokens: int | None
    """In an unlimited cache, over the whole data."""
    all_prefill: Bound | None
    """Best case without any reuse evidence: no prefill is computed at all."""
    all_reuse: Bound | None
    """Best case with reuse evidence: all reuse beyond the best rival is served for nothing."""
    lowest_pool_cost: Range | None
    """USD a month of the cheapest pool."""
    rival_title: str | None
    rival_hit_tokens: int | None
    """Tokens that the best option without a pool serves."""
    hbm_hit_tokens: int | None
    prefill_utilisation: float | None
    """Of that rival."""
    pools: tuple[PoolCase, ...]
    unconfirmed: tuple[str, ...]
    """Names of decisive settings that nobody confirmed."""
    next_measurement: NextMeasurement | None
    gpu_usd_per_hour: Range | None = None
    unreplayed_rivals: tuple[str, ...] = ()
    """What must hold of cheaper rivals that nobody replayed, as conditions."""
    gpus_per_instance: int = 1
    latency: str | None = None
    """What the options do to TTFT, in one sentence; null without a replayed pool."""

    @property
    def prefill_binds(self) -> bool:
        """Freed prefill time gives GPUs back: the fleet is sized by prefill."""
        busy = self.prefill_utilisation
        return busy is not None and busy >= PREFILL_BINDS.value

    @property
    def has_monthly_load(self) -> bool:
        """The window may stand for a month: money a month is given."""
        return self.span_s is not None and self.span_s >= MIN_SPAN.value

    @property
    def is_long_enough(self) -> bool:
        """The window can carry a statement about every month."""
        return self.requests >= MIN_REQUESTS.value and self.has_monthly_load

    @property
    def best_pool(self) -> PoolCase | None:
        """The pooled option with the best chance: keeps the SLO, then the largest margin."""
        if not self.pools:
            return None
        return max(
            self.pools,
            key=lambda pool: (
                pool.keeps_slo,
                pool.saving.value - pool.cost.value,
                -pool.tail_s,
                pool.option_id,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one rule says."""

    outcome: Outcome
    headline: str
    reasons: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    is_proof: bool = False
    """Even the best case, at prices that favour the pool, ends the same way."""
    next_measurement: NextMeasurement | None = None
    option: str | None = None
    """The pooled option it speaks of; null: the best of them."""
