"""What replays said about fleets: from the stage that makes them to the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvtrace.audit.fleet.record import Binding, DegradedState, OptionNeed


@dataclass(frozen=True, slots=True)
class OnStated:
    """SLO at equal GPUs."""

    within: int
    """Requests within the limits of the SLO."""
    ttft_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionFacts:
    """One option; the replays behind it are gone."""

    needs: tuple[OptionNeed, ...]
    """One a load, the trace's own first."""
    binding: Binding
    on_stated: OnStated
    load_at_slo: float | None
    """Times the sessions that keep the SLO on the stated fleet; null: not known."""
    least: int | None = None
    """The fewest instances that keep the SLO or miss it narrowly; null: not searched."""
    carried: int | None = None
    """The fewest instances that carry the load, however late; null: not searched or more."""
    free_prefill_saves: int | None = None
    """Instances that it would need less if no prefill took any time; null: not replayed."""
    replays: int = 0
    """That were made for all this."""

    @property
    def is_searched(self) -> bool:
        """By search over replays; False: by a surrogate, from the replays that were made."""
        return self.least is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradedFacts:
    """One pooled option, on the fleet that it needs, when its pool is not what it should be."""

    option_id: str
    instances: int
    states: tuple[DegradedState, ...]
    span_s: float
    """Of the requests of the cold states."""
    hot_share: float
    pool_nodes: int
    reserve_instances: int | None
    """The fewest instances that carry the load while the pool is down, none below `instances`
    asked; null: more than were replayed."""
    reserve_at_slo: int | None
    """The same that keep the SLO."""
    replays: int
    is_replayed: bool = True
    """False: its states but the warm one are a surrogate."""
    spare_nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """All options of one peak hour."""

    is_searched: bool
    """Options were searched over replays; False: all are from few replays, by a surrogate."""
    reference: str
    """The option that the others are judged by."""
    requests: int
    """Of the peak hour."""
    uncached_tokens: int | None
    options: Mapping[str, OptionFacts]
    degraded: tuple[DegradedFacts, ...] = ()
    degraded_most_replayed: int = 1
    """Pools whose degraded states were replayed at most."""

    @property
    def reserves(self) -> dict[str, int]:
        """By pooled option: instances that carry the load while its pool is down."""
        replayed = [one for one in self.degraded if one.is_replayed]
        known = {one.option_id: one.reserve_instances for one in replayed}
        return {ident: count for ident, count in known.items() if count is not None}

    @property
    def at_slo(self) -> dict[str, int]:
        """By option that was searched: the fewest instances at the load of the trace."""
        searched = {i: one for i, one in self.options.items() if one.is_searched}
        needs = {ident: one.needs[0].instances for ident, one in searched.items()}
        return {ident: need for ident, need in needs.items() if need is not None}

    @property
    def least(self) -> dict[str, int]:
        """By option: the same with narrow misses counted as kept; empty unless searched."""
        return {i: one.least for i, one in self.options.items() if one.least is not None}

    @property
    def carried(self) -> dict[str, int]:
        """By option: the fewest instances that carry the load; empty unless searched."""
        return {i: one.carried for i, one in self.options.items() if one.carried is not None}
