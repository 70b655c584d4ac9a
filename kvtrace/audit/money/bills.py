"""The bill of each option: what it needs, at the prices of the fleet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Final

from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.tco.bill import Bill, total
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need, pool_of_fleet
from kvtrace.cost.tco.other_gpus import other_gpu_price
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.replay.options.local_tiers import LOCAL_FLASH
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.options.pool_tiers import POOL_FLASH
from kvtrace.replay.result import LinkUse, ReplayResult
from kvtrace.replay.scenario import StageSpec, TierSpec
from kvtrace.units import GIB

_FREE: Final = frozenset({"as_observed", "recompute", "hbm_only", "kv_routing"})
_IDLE_DRAM: Final = frozenset({"dram_idle", "dram_idle_kv_routing"})
_POOL_OF_FLEET: Final = "pool_dram_"
"""Pooled options that are the fleet's own pool, whatever the path."""
_LEAST_RENTED_BYTES: Final = 1.0 * GIB
"""Of a managed cache, which is rented by whole nodes."""
_FLASH_TIERS: Final = frozenset({LOCAL_FLASH, POOL_FLASH})
"""What is written to them wears drives."""


@dataclass(frozen=True)
class Bills:
    """Bills by option id; options that nobody states are priced by their ids."""

    fleet: Fleet
    needs: Mapping[str, Need] = field(default_factory=dict)
    """What each stated option needs."""
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    """What each moves a mean day; absent: unknown."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs that each runs on, where they are not today's."""
    today: date | None = None
    """The last day of the log, by which a reservation of GPUs is over or not; null: not over."""

    def need(self, option_id: str) -> Need | None:
        """What it needs; null where nobody knows."""
        stated = self.needs.get(option_id)
        return stated if stated is not None else need_by_id(option_id, self.fleet)

    def bill(self, option_id: str) -> Bill | None:
        """Its bill; null where what it needs is not known."""
        need = self.need(option_id)
        if need is None:
            return None
        traffic, gpus = self.traffic.get(option_id), self.gpus.get(option_id)
        return build_bill(need, self.fleet, traffic=traffic, gpus=gpus, today=self.today)

    def usd_per_month(self, option_id: str) -> Range | None:
        """What it adds a month; null where that is not known."""
        bill = self.bill(option_id)
        if bill is None:
            return None
        cost = bill.usd_per_month
        return Range(cost.low, cost.value, cost.high)

    def smallest_pool_usd_per_month(self) -> Range:
        """What every pool costs a month, however small and wherever it is.

        Formula: the lesser of what it takes to run a service of its own, with no node and no byte,
        and of one node of a managed cache.
        """
        run, rented = (
            build_bill(need, self.fleet, today=self.today).usd_per_month
            for need in (Need(is_operated=True), Need(managed_cache_bytes=_LEAST_RENTED_BYTES))
        )
        return Range(
            min(run.low, rented.low), min(run.value, rented.value), min(run.high, rented.high)
        )

    def usd_per_month_beside_gpus(self, option_id: str) -> Range | None:
        """What it adds a month beside other GPUs; null where that is not known."""
        bill = self.bill(option_id)
        if bill is None:
            return None
        cost = total(line.usd_per_month for line in bill.lines if line.group != "gpus")
        return Range(cost.low, cost.value, cost.high)

    def gpu_price(self, option_id: str) -> Constant:
        """USD per GPU-hour of the GPUs that it runs on."""
        need = self.need(option_id)
        if need is None or need.gpu is None:
            return self.fleet.gpu_usd_per_hour
        return other_gpu_price(self.fleet, need.gpu)

    @cached_property
    def prices(self) -> tuple[Constant, ...]:
        """Every price that stands in a bill of a stated option, each once."""
        bills = (self.bill(ident) for ident in self.needs)
        found = (line.price for bill in bills if bill is not None for line in bill.lines)
        return tuple({price.id: price for price in found}.values())


def need_by_id(option_id: str, fleet: Fleet) -> Need | None:
    """What an option that nobody states needs, by its id; null for an unknown one.

    Assumes: the GPU nodes have the network ports that they need, and the racks have room.
    """
    if option_id in _FREE:
        return Need()
    if option_id in _IDLE_DRAM:
        return Need(idle_dram_bytes=fleet.instances * fleet.dram_idle_bytes_per_instance.value)
    if option_id.startswith(_POOL_OF_FLEET):
        return pool_of_fleet(fleet)
    return None


def build_bills(
    fleet: Fleet,
    options: Iterable[ReplayOption],
    replays: Iterable[ReplayResult],
    *,
    windows_per_day: float | None,
    today: date | None = None,
) -> Bills:
    """Bills of what was replayed; `windows_per_day`: replayed loads in a day, null: unknown."""
    stated = {option.scenario.option_id: option for option in options}
    traffic = {}
    if windows_per_day is not None:
        for result in replays:
            scenario = result.scenario
            moved = traffic_of(scenario.tiers, result.link_use, windows_per_day)
            traffic[scenario.option_id] = moved
    return Bills(
        fleet=fleet,
        needs={ident: option.need for ident, option in stated.items()},
        traffic=traffic,
        gpus={
            ident: option.scenario.instances * fleet.gpus_per_instance
            for ident, option in stated.items()
            if option.need.gpu is not None
        },
        today=today,
    )


def traffic_of(
    tiers: Sequence[TierSpec], link_use: Iterable[LinkUse], windows_per_day: float
) -> Traffic:
    """What a replay wrote to flash, and moved to and from shared tiers, for a mean day.

    What pool nodes write to their own drives crosses no network.
    """
    uses = tuple(link_use)
    reads = _moved(tiers, {one.link_id: one.bytes_read for one in uses}, lambda tier: tier.read)
    writes = _moved(
        tiers, {one.link_id: one.bytes_written for one in uses}, lambda tier: tier.write
    )
    shared = [tier.tier_id for tier in tiers if tier.scope == "shared"]
    read = math.fsum(reads[tier] for tier in shared)
    written = math.fsum(writes[tier] for tier in shared if tier != POOL_FLASH)
    worn = math.fsum(count for tier, count in writes.items() if tier in _FLASH_TIERS)
    return Traffic(
        read_bytes_per_day=read * windows_per_day,
        written_bytes_per_day=written * windows_per_day,
        flash_written_bytes_per_day=worn * windows_per_day,
    )


def _moved(
    tiers: Sequence[TierSpec],
    bytes_by_link: Mapping[str, float],
    way: Callable[[TierSpec], tuple[StageSpec, ...]],
) -> dict[str, float]:
    """Bytes of each tier by its id, the deepest first: it crosses links of those above it, too.

    Bytes of a tier cross all its links, so that the least of these bounds them.
    """
    left, moved = dict(bytes_by_link), {}
    for tier in reversed(tiers):
        links = {link for stage in way(tier) for link in stage.link_ids if link in left}
        moved[tier.tier_id] = min((left[link] for link in links), default=0.0)
        for link in links:
            left[link] -= moved[tier.tier_id]
    return moved
