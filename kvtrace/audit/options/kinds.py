"""Which options are weighed as what: free rivals of a pool, priced ones, and those apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvtrace.cost.tco.need import Need
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.options.recipes import family_of


def is_pool(option_id: str) -> bool:
    """Whether all instances share the KV of the option, by its family in the catalogue."""
    return family_of(option_id) == "pool"


def is_local(option_id: str) -> bool:
    """Whether the option reuses KV without a pool: a rival of the pool, free or not."""
    return not is_pool(option_id) and option_id not in {"as_observed", "recompute"}


def is_free(need: Need) -> bool:
    """Nothing is bought, rented or run for it; idle DRAM is there."""
    return replace(need, idle_dram_bytes=0.0) == Need()


def priced_ids(options: Iterable[ReplayOption]) -> frozenset[str]:
    """Options that cost something."""
    return frozenset(one.option_id for one in options if not is_free(one.need))


def quantised_ids(options: Iterable[ReplayOption]) -> frozenset[str]:
    """Options with KV of fewer bits: their answers may differ, which nobody evaluated here."""
    return frozenset(one.option_id for one in options if one.is_quantised)


def unweighed_ids(options: Iterable[ReplayOption]) -> frozenset[str]:
    """Options that are no rivals of a pool: mixes that only `full` replays.

    A mix is compared in the table and on the frontier; how few instances it needs is not asked.
    """
    return frozenset(one.option_id for one in options if not one.is_quick)
