"""The part of the record that says how large the fleet has to be; every figure is modelled."""

from __future__ import annotations

from typing import Literal

import msgspec

Need = Literal["replayed", "enough", "surrogate", "none"]
"""replayed: the count was replayed and keeps the SLO, the one below was replayed and does not;
enough: it was replayed and keeps the SLO, fewer were not asked; surrogate: from the loads of the
replays that were made; none: no count is known to keep it."""


class OptionNeed(msgspec.Struct, kw_only=True):
    """The fewest instances on which one option keeps the SLO under one load."""

    option: str
    load: float
    """Times the sessions of the trace."""
    instances: int | None
    """Null: none up to `most`, or not known."""
    gpus: int | None
    basis: Need
    at_least: int
    """Below it the SLO is missed: replayed, or by the surrogate."""
    most: int
    """The largest fleet that was looked at."""
    surrogate: int | None = None
    """What the loads of the replays on the stated fleet say, beside a search; null: not known."""
    is_infeasible: bool = False
    """Not even an empty fleet keeps the SLO: more instances do not help."""
    floor_s: float | None = None
    """TTFT, on an empty fleet, of the request on which the SLO depends."""
    allowed_s: float | None = None
    """What the SLO allows that request."""
    reason: str = ""
    """What is missed on one instance less, or why there is no count; for people."""


class Binding(msgspec.Struct, kw_only=True):
    """What limits one option, and what would next."""

    option: str
    instances: int
    """Of the replay that was looked at: the largest fleet that misses the SLO, else the stated."""
    is_missed: bool
    """The SLO is missed there: what binds keeps the fleet from being smaller."""
    binds: str
    """prefill | decode | hbm_capacity | tpot | link:<id> | move | redundancy | none."""
    next: str
    """The same; what binds once the first does not."""
    basis: Literal["relaxed", "busiest"]
    """relaxed: replayed again with each resource free in turn; busiest: the busiest of its
    resources."""
    used: dict[str, float]
    """Share of each resource that is in use, 0..1 and above where work piles up."""
    why: str
    """For people."""


class FleetView(msgspec.Struct, kw_only=True):
    """One option by three views: GPUs at equal SLO, SLO at equal GPUs, load at equal both."""

    option: str
    gpus: int | None
    """At equal SLO and load; null: not known."""
    groups_saved: float | None
    """Instances less than the reference needs, before rounding to whole groups of GPUs: from the
    loads that both carry on the stated GPUs. Below zero where it needs more; null: not known."""
    whole_groups_saved: int | None
    """Count of the reference less that of the option (`needs`), at `basis`; no reserve is taken
    off, and the verdict rests on replays instead: `whole_instances_saved` of the option."""
    basis: Need = "none"
    """Of `whole_groups_saved`: the weaker of the two counts."""
    within: int
    """Requests within the SLO at equal GPUs and load, …"""
    requests: int
    """… of so many."""
    ttft_p99_s: float | None
    load_at_slo: float | None
    """Times the sessions of the trace that keep the SLO on the stated GPUs."""
    load_basis: Need
    """Of `load_at_slo` and `groups_saved`."""
    reason: str
    """Why it saves no group; empty where it does."""


class SurrogateCheck(msgspec.Struct, kw_only=True):
    """The surrogate, from one replay of each option, against counts that more replays gave."""

    checked: int
    """Options and loads where both are known."""
    equal: int
    most_over: int
    """Largest surrogate less search, in instances; below zero: none too high."""
    most_under: int
    """Largest search less surrogate."""
    unfounded: int = 0
    """Surrogates for which the search found no fleet that keeps the SLO."""


State = Literal["warm", "pool_down", "pool_restarted", "released", "hot_node", "node_lost"]
"""warm: as it runs; node_lost: one node is gone, with its part of capacity and rate, as far as no
spare one takes its place; pool_down: the tiers that instances share are gone; pool_restarted: they
begin empty; released: no cached block is valid any more, in HBM neither; hot_node: the ports of one
node of the pool carry most of its traffic."""


class DegradedState(msgspec.Struct, kw_only=True):
    """One pooled option, on the fleet that it needs, in one state."""

    state: State
    requests: int
    within: int
    """Requests within the SLO."""
    keeps_slo: bool
    carries_load: bool
    hit_ratio_tokens: float | None
    ttft_p99_s: float | None
    rewarm_s: float | None = None
    """Until the hit ratio stays within two points of the warm fleet's; null: not cold, or not
    within the window."""
    is_rewarmed: bool | None = None
    """Null: it was not cold."""
    requests_rewarming: int | None = None
    within_rewarming: int | None = None
    """Of these, within the SLO."""
    recomputed_gpu_s: float | None = None
    """GPU-seconds of prefill more than warm; of cold states."""
    late_more: int | None = None
    """Requests beyond the SLO more than warm; of cold states."""
    slo: str = ""
    """The figures, in one sentence."""
    basis: Literal["replayed", "surrogate"] = "replayed"
    """surrogate: from its warm replay, and from what a pool that was replayed cold lost."""


class Degraded(msgspec.Struct, kw_only=True):
    """A pooled option when its pool is not what it should be."""

    option: str
    instances: int
    """The fleet that it needs with its pool."""
    states: list[DegradedState]
    span_s: float
    """Of the requests that the cold states are replayed on."""
    hot_share: float
    """Of the pool's traffic that the hot node serves."""
    pool_nodes: int
    """That serve; spare ones are not among them."""
    reserve_instances: int | None
    """Instances that carry the load, without keeping the SLO, while the pool is down; null: more
    than were replayed."""
    reserve_at_slo: int | None
    """Instances that keep the SLO while the pool is down; null: more than were replayed."""
    saved: int
    """Whole instances less than the best option without a pool, no reserve kept."""
    saved_with_reserve: int
    """The same with as many kept as carry the load without the pool: what the verdict takes."""
    releases_per_month: float | None = None
    """From the cadence of the fleet file, or its default; null: none."""
    cold_s_per_month: float | None = None
    """Seconds of re-warming a month; null where it does not re-warm within the window."""
    late_requests_per_month: float | None = None
    """Requests beyond the SLO a month because of releases in the busiest hour, more than warm."""
    recomputed_gpu_hours_per_month: float | None = None
    """GPU-hours of prefill a month that releases make the fleet compute again."""
    is_replayed: bool = True
    """False: its states but the warm one are a surrogate, and no reserve was replayed."""
    spare_nodes: int = 0
    """Nodes of the pool that are bought beside those that serve."""


class FleetSizes(msgspec.Struct, kw_only=True):
    """The fleet that each option needs."""

    slo: str
    """In words."""
    is_slo_stated: bool
    today_ttft_p50_s: float | None = None
    """Of `reference` on the stated fleet, modelled; with nothing stated it is the SLO."""
    today_ttft_p90_s: float | None = None
    measured_ttft_p50_s: float | None = None
    """Of the running system, over the whole log; null: no TTFT was measured."""
    measured_ttft_p90_s: float | None = None
    reference: str
    """Title of the option that the others are compared with."""
    instances: int
    """Of the stated fleet."""
    gpus_per_instance: int
    is_searched: bool
    """Counts are by search over replays; else a surrogate says them."""
    requests: int
    """Of the window that was replayed."""
    uncached_tokens: int | None
    """Prompt tokens of the window that no cache served, by which it was chosen."""
    covers_a_day: bool
    """The log holds a busy day."""
    peak_factor: float | None
    """By which the load was raised, since the log does not; null: nobody stated it."""
    within_today: int
    """Requests within the limits with the reference itself, of `requests`."""
    needs: list[OptionNeed]
    binds: list[Binding]
    views: list[FleetView]
    surrogate: SurrogateCheck | None
    most_any_pool_saves: int | None = None
    """Instances that the reference would save if no prefill took any time; null: not replayed.
    With `is_searched` False only one less was asked: 1 is then at least 1."""
    degraded: list[Degraded] = []
    """Of pooled options: the best one is replayed, at depth full as many as the budget allows; the
    others are a surrogate."""
    degraded_most_replayed: int = 1
    """The budget: pools whose states are replayed at most."""
