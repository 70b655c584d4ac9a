"""Rivals that nobody replayed; and the size that a pool would need to add hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.options.kinds import is_local
from kvtrace.audit.record import CurvePoint
from kvtrace.audit.sizing.pool_sizes import SMALLEST, cache_that_adds
from kvtrace.audit.slo.fleets import Fleets
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.sensitivity import capacity_blocks
from kvtrace.audit.words import percent
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.scenario import Scenario
from kvtrace.units import format_bytes

ROUTING: Final = "kv_routing"
"""The option that routes by the caches and buys nothing: a rival of every pool."""
BOTH: Final = "dram_idle_kv_routing"
"""The same with idle DRAM: no less a rival, and no sum of the two."""


def unreplayed_rivals(
    fleets: Fleets, fleet: Fleet, *, most_local_ratio: float | None = None
) -> tuple[str, ...]:
    """What must hold of rivals that cost nothing, exist here and were not replayed.

    One instance has nothing to route, and no free DRAM is no store. `most_local_ratio`: what one
    cache of all HBM and all idle DRAM would hit of the prompt tokens, by the capacity curve, which
    no routing betters; null: not known.
    """
    is_routed, has_dram = fleet.instances > 1, fleet.dram_idle_bytes_per_instance.value > 0
    replayed = fleets.standings.keys()
    is_stored = not replayed.isdisjoint({"dram_idle", BOTH})
    is_both_left = is_routed and has_dram and BOTH not in replayed
    has_each = is_stored and ROUTING in replayed
    wanted = (
        (is_routed and ROUTING not in replayed, "routing that follows the cache"),
        (has_dram and not is_stored, "idle DRAM of the GPU nodes"),
        (is_both_left and has_each, "routing that follows the cache, with idle DRAM"),
    )
    missing = [what for is_left, what in wanted if is_left]
    bound = (
        ""
        if most_local_ratio is None
        else f": at most {percent(most_local_ratio)} of the prompt tokens, by the capacity curve"
    )
    return tuple(
        f"{what}, which costs nothing and was not replayed, does not serve the same hits{bound}"
        for what in missing
    )


def quantised_rivals(fleets: Fleets, pool_id: str) -> tuple[str, ...]:
    """What must hold of options without a pool that do as well with KV of fewer bits.

    They are no rivals of KV as it is, since nobody evaluated their answers here; a pool with such
    KV has been weighed against them.
    """
    if pool_id in fleets.narrow:
        return ()
    pool = fleets.standings[pool_id]
    able = [
        standing.result.scenario.title
        for ident, standing in fleets.standings.items()
        if ident in fleets.narrow
        and is_local(ident)
        and standing.is_feasible
        and standing.least <= (pool.most or fleets.instances)
    ]
    if not able:
        return ()
    return (
        f"KV of fewer bits makes answers worse than you accept: {able[0]} keeps the TTFT and TPOT "
        "on as few instances, or was not seen to miss them (modelled); accuracy is not evaluated "
        "here, run your own evaluation with `--kv-cache-dtype fp8`",
    )


def size_sentence(
    pool: Scenario,
    rival: Scenario,
    curve: Sequence[CurvePoint],
    *,
    block_tokens: int,
    bytes_per_token: float,
) -> tuple[bool, str]:
    """Whether a larger pool would add hits, and the smallest that does, in a sentence.

    Assumes: the pool keeps copies of what HBM holds, as it does in the replays.
    """
    held = sum(tier.capacity_bytes for tier in pool.tiers)
    local = capacity_blocks(rival, block_tokens)
    needed = cache_that_adds(curve, local)
    size = f"a pool of {format_bytes(held)}"
    if needed is None:
        return False, (
            f"{size} adds little to what {rival.title} serves: by the capacity curve of the whole "
            "trace no size adds much"
        )
    wanted, all_of_it = (each * block_tokens * bytes_per_token for each in (needed, local))
    is_small = wanted > held
    lacks = "is too small" if is_small else "does not lack size, but adds little all the same"
    return is_small, (
        f"{size} {lacks}: the {SMALLEST} has {format_bytes(wanted)} with copies of what HBM "
        f"holds; it serves {100 * LITTLE.value:.0f} % more of the prompt tokens than one cache as "
        f"large as {rival.title}, {format_bytes(all_of_it)} in all (capacity curve of the whole "
        "trace, idealised)"
    )
