"""One option of a comparison: its scenario, and what it takes to have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from kvtrace.cost.tco.need import Need
from kvtrace.replay.scenario import Scenario

Family = Literal["today", "local", "pool", "hardware"]
"""today: nothing is added; local: routing, DRAM, SSD, number formats or isolation on the instances
as they are; pool: KV that all instances share; hardware: another GPU."""
Place = Literal["peer_dram", "dram_nodes", "dram_ssd_nodes", "file_system", "managed_cache"]
Wire = Literal["tcp", "rdma_bounce", "rdma_direct"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOption:
    """What is replayed and what it needs; `scenario.option_id` names it."""

    scenario: Scenario
    family: Family
    need: Need
    place: Place | None = None
    """Where a pool lives; null for options that are no pool."""
    wire: Wire | None = None
    port_bits_per_s: float | None = None
    """Line rate of the ports on its path; null: as the hardware file or the fleet file says."""
    is_quantised: bool = False
    """KV of fewer bits than today's. Accuracy is not evaluated."""
    is_quick: bool = True
    """Replayed at `--depth quick`, too; the others take `full`."""

    @property
    def option_id(self) -> str:
        """The id by which records, tables and flags name it."""
        return self.scenario.option_id


@dataclass(frozen=True, slots=True)
class AbsentOption:
    """An option that cannot be replayed here, and why."""

    option_id: str
    title: str
    reason: str
    """For people; goes on after `because`."""


@dataclass(frozen=True)
class Catalogue:
    """All options of a comparison, and those that cannot be."""

    options: tuple[ReplayOption, ...]
    absent: tuple[AbsentOption, ...] = ()
    left_to_full: int = 0
    """Options that only `--depth full` replays."""

    @cached_property
    def by_id(self) -> Mapping[str, ReplayOption]:
        """Each option by its id."""
        return {option.option_id: option for option in self.options}
