"""The service as it runs today: what it keeps below HBM, by the logs or the fleet file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvtrace.cost.fleet import BelowHbm
from kvtrace.cost.tco.need import Need
from kvtrace.replay.options.ground import CannotRunError, Ground
from kvtrace.replay.options.local_tiers import idle_dram, local_nvme
from kvtrace.replay.options.parts import Parts
from kvtrace.replay.options.pool_tiers import dram_nodes

OBSERVED_WORDS: Final[Mapping[BelowHbm, str]] = {
    "nothing": "HBM only",
    "host_dram": "host DRAM",
    "local_ssd": "host DRAM and local SSD",
    "pool": "pool",
    "host_dram_and_pool": "host DRAM and pool",
}


def observed_tiers(ground: Ground) -> Parts:
    """The tiers that are there: nothing is bought for them.

    Host DRAM is as large as the engine printed or the fleet file states, else as what is free.

    Raises:
        CannotRunError: the service keeps KV in HBM alone, or nobody knows; `hbm_only` is today.
    """
    below = ground.fleet.below_hbm
    if below.value == "nothing":
        if below.kind == "assumed":
            raise CannotRunError(f"{below.source}: HBM only stands in its place, as an assumption")
        raise CannotRunError(f"it is HBM only ({below.source})")
    there = _with_used_dram(ground)
    if below.value == "host_dram":
        parts = idle_dram(there)
    elif below.value == "local_ssd":
        parts = local_nvme(there)
    elif below.value == "pool":
        parts = dram_nodes(there, ground.fleet.today_wire.value)
    else:
        parts = above(idle_dram(there), dram_nodes(there, ground.fleet.today_wire.value))
    return replace(parts, need=Need())


def above(first: Parts, second: Parts) -> Parts:
    """Two stores in a chain: what the first does not hold is looked for in the second."""
    return Parts(
        tiers=(*first.tiers, *second.tiers),
        links=tuple({link.link_id: link for link in (*first.links, *second.links)}.values()),
        need=replace(second.need, idle_dram_bytes=first.need.idle_dram_bytes),
    )


def _with_used_dram(ground: Ground) -> Ground:
    used = ground.fleet.dram_used_bytes_per_instance
    if used is None:
        return ground
    return replace(ground, fleet=replace(ground.fleet, dram_idle_bytes_per_instance=used))
