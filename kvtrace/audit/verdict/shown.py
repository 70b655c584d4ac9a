"""The pools that the verdict weighs, as options, sizes and findings show them: one number each."""

from __future__ import annotations

from collections.abc import Iterable

from kvtrace.audit.record import Option
from kvtrace.audit.sizing.reuse_point import WeighedPool
from kvtrace.audit.verdict.cases import PoolCase


def add_rivals(options: Iterable[Option], pools: Iterable[PoolCase]) -> None:
    """What each pool is weighed against, and the tokens that it adds to it, as the verdict has it.

    Null for a pool that is not weighed, as one without a price.
    """
    weighed = {pool.option_id: pool for pool in pools}
    for option in options:
        pool = weighed.get(option.id)
        if pool is not None and pool.rival is not None:
            option.rival = pool.rival.option_id
            option.extra_hit_tokens = pool.extra_hit_tokens


def weighed_pools(pools: Iterable[PoolCase]) -> list[WeighedPool]:
    """Those that carry the load, over the rival that each is weighed against."""
    return [
        WeighedPool(
            option_id=pool.option_id,
            title=pool.title,
            extra_hit_tokens=pool.extra_hit_tokens,
            cost=pool.cost,
            rival_title=pool.rival.title,
            rival_hit_tokens=pool.rival.hit_tokens,
        )
        for pool in pools
        if pool.is_feasible and pool.rival is not None
    ]
