"""The bill of each option: what it needs, at the prices of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Final

from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.tco.bill import Bill
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.result import ReplayResult

_FREE: Final = frozenset({"as_observed", "recompute", "hbm_only", "kv_routing"})
_IDLE_DRAM: Final = frozenset({"dram_idle", "dram_idle_kv_routing"})
_POOL_OF_FLEET: Final = "pool_dram_"
"""Pooled options that are the fleet's own pool, whatever the path."""
_UNPAID_TIER: Final = "host_dram"
"""Its bytes wear nothing and cross no zone."""


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


def pool_of_fleet(fleet: Fleet) -> Need:
    """The pool of dedicated DRAM nodes that the fleet states or assumes."""
    return Need(
        pool_nodes=fleet.pool_nodes.value,
        pool_dram_bytes=fleet.pool_dram_bytes.value,
        pool_ports=fleet.pool_nodes.value * fleet.pool_nics_per_node.value,
        is_operated=True,
    )


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
            moved = traffic_of(result, windows_per_day)
            traffic[result.scenario.option_id] = moved
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


def traffic_of(result: ReplayResult, windows_per_day: float) -> Traffic:
    """What a replay moved to and from tiers below host memory, for a mean day.

    Bytes of a tier cross all its links, so that the least of these bounds them.
    """
    uses = {use.link_id: use for use in result.link_use}
    read = written = 0.0
    for tier in result.scenario.tiers:
        if tier.tier_id == _UNPAID_TIER:
            continue
        reads = [uses[link] for stage in tier.read for link in stage.link_ids if link in uses]
        writes = [uses[link] for stage in tier.write for link in stage.link_ids if link in uses]
        read += min((use.bytes_read for use in reads), default=0.0)
        written += min((use.bytes_written for use in writes), default=0.0)
    return Traffic(
        read_bytes_per_day=read * windows_per_day,
        written_bytes_per_day=written * windows_per_day,
    )
