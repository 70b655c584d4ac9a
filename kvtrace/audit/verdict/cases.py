"""What the verdict rests on, as plain numbers: so that its rules can be tested by a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from kvtrace.audit.findings.sampling import LogGap
from kvtrace.audit.record import NextMeasurement, Outcome
from kvtrace.audit.thresholds import (
    BUSY_DAY,
    LITTLE,
    MIN_REQUESTS,
    MIN_SPAN,
    NET_NEGATIVE_DOMINATES,
    P_PAYS,
    PREFILL_BINDS,
    TAIL_TOLERANCE,
    TIE,
)
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.circumstances import Circumstances
from kvtrace.schema.manifest import Grade

PATHS_BY_SIMPLICITY: Final = ("_tcp", "_rdma_bounce", "_rdma_direct")
"""What a path asks of the hardware, least first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The option without a pool that a pool is weighed against; modelled."""

    option_id: str
    title: str
    hit_tokens: int
    """Tokens that it serves."""
    cost: Range | None = None
    """USD a month, of which `cost` of the pool is net; null: it costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCase:
    """One pooled option, weighed against the best option without a pool; all modelled."""

    option_id: str
    title: str
    extra_hit_tokens: int
    """Tokens that it serves beyond its rival; below zero where that one holds more."""
    saving: Range
    """USD a month; low and value are whole instances that replays give back, the low at the ends of
    the model's constants; the high may be an estimate."""
    unrounded_saving_usd: float
    """USD a month of the freed prefill time, before rounding to whole instances: an estimate."""
    cost: Range
    """USD a month of what the pool adds."""
    instances_saved: Range
    """Whole instances by replay: value at the middle of the constants, low at their ends; the high
    may be the estimate from freed time."""
    is_no_slower: bool
    """Within tolerance of today's TTFT and TPOT, over all requests and in each prompt bucket that
    has enough of them."""
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
    freed: Range | None = None
    """Instances that its freed prefill time is worth, before rounding: an estimate; null: as
    `instances_saved`."""
    is_saving_replayed: bool = False
    """Replays on fewer instances stand behind low and value of `instances_saved`."""
    how_saved: str = ""
    """What those replays say, for people."""
    at_ends: str = ""
    """What the same replays at the ends of the constants say, for people."""
    avoided: int = 0
    """Instances beyond the stated fleet that its rivals need at least: none is given back, and none
    is in low and value of `instances_saved`."""
    matched_by: str = ""
    """A rival that costs nothing and needs no more instances than this, where this gives some back;
    empty: it gives none back, or each rival was seen to need more."""
    is_match_shown: bool = False
    """Replays show the match; False: none clearly shows that the rival needs more."""
    worst_excess: str = ""
    """Where its tail is longer than today's, for people: `+12 ms at p90 of prompts of …`."""
    unjudged: str = ""
    """A tail that is longer but rests on too few requests to be judged, for people."""
    is_feasible: bool = True
    """It carries the load on the stated fleet."""
    is_quantised: bool = False
    """KV of fewer bits than today's: accuracy is not evaluated here."""
    rival: Rival | None = None
    """The one that leaves it least: saving, cost and hits are beyond that one's; null: the best
    that costs nothing, as `Case` has it."""

    @property
    def net_of(self) -> str | None:
        """Title of a rival that costs something: `cost` is what the pool takes more than it."""
        return None if self.rival is None or self.rival.cost is None else self.rival.title

    @property
    def is_faster_than_recompute(self) -> bool:
        """Most of what it loads arrives sooner than it could be recomputed."""
        share = self.net_negative_share
        return share is None or share < NET_NEGATIVE_DOMINATES.value

    @property
    def keeps_slo(self) -> bool:
        """Within tolerance of today, in each class of prompts that can be judged, by hits that are
        mostly faster than recomputing.
        """
        return self.is_feasible and self.is_no_slower and self.is_faster_than_recompute

    @property
    def is_paying(self) -> bool:
        """The low value beats the high cost, by replay, and nobody waits longer."""
        is_proved = self.is_saving_replayed and self.instances_saved.low >= 1
        return is_proved and self.keeps_slo and self.saving.low > self.cost.high

    @property
    def is_shown_at_the_middle(self) -> bool:
        """Replays at middle constants give an instance back, those at the ends do not all."""
        return (
            self.is_saving_replayed and self.instances_saved.low < 1 <= self.instances_saved.value
        )

    @property
    def estimate(self) -> Range:
        """Instances that the freed prefill time is worth, before rounding."""
        return self.instances_saved if self.freed is None else self.freed


def choose_pool(pools: Sequence[PoolCase]) -> PoolCase | None:
    """The pooled option with the best chance; the only place that picks one.

    First those that pay, KV in as many bits as today before KV in fewer, else those that keep the
    SLO, replayed ones before estimates; then the largest margin. Of equals those with as many bits,
    then the lower tail, then the lower cost, then the simpler path.
    """
    for some in (
        [pool for pool in pools if pool.is_paying and not pool.is_quantised],
        [pool for pool in pools if pool.is_paying],
        [pool for pool in pools if pool.keeps_slo and pool.instances_saved.low >= 1],
        [pool for pool in pools if pool.keeps_slo and pool.is_shown_at_the_middle],
        [pool for pool in pools if pool.keeps_slo and pool.is_saving_replayed],
        [pool for pool in pools if pool.keeps_slo],
        [pool for pool in pools if pool.is_feasible and pool.is_faster_than_recompute],
        [pool for pool in pools if pool.is_feasible],
    ):
        if some:
            pools = some
            break
    if not pools:
        return None
    step = TIE.value * max(pool.cost.value for pool in pools)
    best = max(pool.saving.value - pool.cost.value for pool in pools)
    equal = [pool for pool in pools if pool.saving.value - pool.cost.value >= best - step]
    equal = [pool for pool in equal if not pool.is_quantised] or equal
    shortest = min(pool.tail_s for pool in equal)
    equal = [p for p in equal if p.tail_s <= shortest * (1 + TAIL_TOLERANCE.value)]
    cheapest = min(pool.cost.value for pool in equal)
    equal = [pool for pool in equal if pool.cost.value <= cheapest + step]
    return min(equal, key=lambda pool: (_complexity(pool.option_id), pool.option_id))


def _complexity(option_id: str) -> int:
    for rank, name in enumerate(PATHS_BY_SIMPLICITY):
        if name in option_id:
            return rank
    return len(PATHS_BY_SIMPLICITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The most that any cache could be worth: moves are free, capacity is unlimited."""

    instances: Range
    """Instances that the freed prefill time is worth."""
    saving: Range
    """USD a month."""
    what: str
    """What is free in it, for people."""
    is_peak: bool = True
    """The high holds in the busiest minutes of all the data; False: a mean load, or of a part of
    the data, and no proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How often the best pool saves more than it costs, over all that is open."""

    pays: float
    """Share of the samples."""
    samples: int
    most_open: str = ""
    """The input that is worth most to know, for people; empty where none would change anything."""

    @property
    def is_high(self) -> bool:
        """Enough for a `pays`."""
        return self.pays >= P_PAYS.value

    @property
    def is_open(self) -> bool:
        """Neither answer is nearly sure."""
        return 1.0 - P_PAYS.value < self.pays < P_PAYS.value

    def __str__(self) -> str:
        """`the pool pays in 62 % of 4,096 samples of what is open`."""
        return (
            f"the pool pays in {100 * self.pays:.0f} % of {self.samples:,} samples of what is open"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that the verdict rests on; unknown is None."""

    grade: Grade
    requests: int
    span_s: float | None
    prompt_tokens: int | None
    reusable_tokens: int | None
    """Of the weighed requests, in an unlimited cache."""
    all_prefill: Bound | None
    """Best case without any reuse evidence: no prefill is computed at all."""
    all_reuse: Bound | None
    """Best case with reuse evidence: all reuse beyond the best rival is served for nothing."""
    lowest_pool_cost: Range | None
    """USD a month of the cheapest pool that is weighed, of the size that it has."""
    rival_title: str | None
    """The best option without a pool that costs nothing; a pool has its own: `rival_of`."""
    rival_hit_tokens: int | None
    """Tokens that it serves."""
    hbm_hit_tokens: int | None
    prefill_utilisation: float | None
    """Of today's option."""
    pools: tuple[PoolCase, ...]
    unconfirmed: tuple[str, ...]
    """Names of decisive settings that nobody confirmed."""
    next_measurement: NextMeasurement | None
    gpu_usd_per_hour: Range | None = None
    smallest_pool_cost: Range | None = None
    """USD a month that every pool costs, however small; null: not known."""
    weighed_size: str = ""
    """The cheapest pool that is weighed, with its size, for people."""
    narrow_rivals: tuple[str, ...] = ()
    """What must hold of options without a pool that do as well with KV of fewer bits."""
    unreplayed_rivals: tuple[str, ...] = ()
    """What must hold of cheaper rivals that nobody replayed, as conditions."""
    contract: str = ""
    """What a GPU that is given back is worth by its contract, in one sentence."""
    paid_until: date | None = None
    """GPUs are reserved until then, and `saving` of the pools is nothing; null: they are not."""
    instance_after: Range | None = None
    """USD a month that one instance is worth from then on."""
    gpus_per_instance: int = 1
    latency: str | None = None
    """What the options do to TTFT, in one sentence; null without a replayed pool."""
    trace_prompt_tokens: int | None = None
    """Of all the data; null: as `prompt_tokens`."""
    trace_reusable_tokens: int | None = None
    """Of all the data, in an unlimited cache; null: as `reusable_tokens`."""
    is_history_known: bool = True
    """`reusable_tokens` counts what came before the weighed requests; False: a lower bound."""
    is_cold: bool = False
    """Replays started with empty caches in the middle of the data: their hits are a lower bound."""
    window_doubt: str | None = None
    """The weighed requests reuse clearly less than the log does, in one sentence; null: they do
    not."""
    load: str | None = None
    """Which options carry the load and which do not, in one sentence; null where all do."""
    is_peak_stated: bool = False
    """A peak factor is stated, and the load was raised by it."""
    is_paid_by_the_hour: bool = True
    """GPUs are elastic: what is saved is hours, those off the peak, too."""
    is_slo_stated: bool = False
    """A team states the SLO; False: it is no worse than today."""
    is_overloaded: bool = False
    """No option carries the load on the stated fleet."""
    is_pool_needed: bool = False
    """No option without a pool carries the load, a pooled one does."""
    today: str | None = None
    """What is taken to run today, in one sentence."""
    is_fewer_kept: bool = False
    """Some option keeps the SLO on fewer instances, by replay."""
    pool_capacity: str | None = None
    """The size of the pool, and the size that would add hits, in one sentence."""
    is_pool_small: bool = True
    """A larger one would add hits, by the capacity curve; False: its size is not what it lacks."""
    chance: Chance | None = None
    """Of the best pool; null: not sampled."""
    log_gap: LogGap | None = None
    """What the log does not hold; null: it seems whole."""
    around: Circumstances = field(default_factory=Circumstances)

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
    def covers_a_day(self) -> bool:
        """The window holds a daily peak and the hours off it, so that a month may repeat it.

        A stated peak factor sizes the fleet and stands for the peak only: enough where GPUs are
        paid for every hour.
        """
        if self.is_peak_stated and not self.is_paid_by_the_hour:
            return True
        return self.span_s is not None and self.span_s >= BUSY_DAY.value

    def shows_more_than(self, bound: Bound) -> bool:
        """Replays give back more instances than the bound allows: it rests on how busy a fleet is
        kept, which an SLO may put lower.
        """
        return any(
            pool.is_saving_replayed and pool.instances_saved.value > bound.instances.high
            for pool in self.pools
        )

    @property
    def contradicted(self) -> Bound | None:
        """A best case that replays exceed and that no pool would be paid by; null: none."""
        cost = self.lowest_pool_cost
        of_reuse = self.all_reuse if self.is_history_known else None
        bounds = [one for one in (self.all_prefill, of_reuse) if one is not None]
        if cost is None:
            return None
        low = (one for one in bounds if one.is_peak and one.saving.high < cost.low)
        return next((one for one in low if self.shows_more_than(one)), None)

    @property
    def is_chance_low(self) -> bool:
        """Samples of what is open say that it loses money too often."""
        return self.chance is not None and not self.chance.is_high

    @property
    def is_long_enough(self) -> bool:
        """The window can carry a statement about every month."""
        return self.has_tail and self.has_monthly_load

    @property
    def has_tail(self) -> bool:
        """Enough requests for a tail: with fewer, nothing is said of what waits longer."""
        return self.requests >= MIN_REQUESTS.value

    @property
    def best_pool(self) -> PoolCase | None:
        """The pooled option that the verdict speaks of."""
        return choose_pool(self.pools)

    @property
    def all_reusable_tokens(self) -> int | None:
        """Of all the data."""
        known = self.trace_reusable_tokens
        return self.reusable_tokens if known is None else known

    @property
    def all_prompt_tokens(self) -> int | None:
        """Of all the data."""
        known = self.trace_prompt_tokens
        return self.prompt_tokens if known is None else known

    def rival_of(self, pool: PoolCase | None) -> str | None:
        """Title of the option that the pool is weighed against."""
        return self.rival_title if pool is None or pool.rival is None else pool.rival.title

    def rival_hits(self, pool: PoolCase | None) -> int | None:
        """Tokens that this option serves."""
        return (
            self.rival_hit_tokens if pool is None or pool.rival is None else pool.rival.hit_tokens
        )

    def adds_hits(self, pool: PoolCase) -> bool:
        """It serves clearly more of the prompt tokens than its rival."""
        prompt = self.prompt_tokens or 0
        if self.is_pool_needed:
            return True
        return bool(prompt) and pool.extra_hit_tokens / prompt >= LITTLE.value

    def served_share(self, pool: PoolCase | None) -> float | None:
        """Of the reusable tokens, what the rival of the pool serves."""
        hits = self.rival_hits(pool)
        return None if hits is None or not self.reusable_tokens else hits / self.reusable_tokens


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
