"""The `pool_hits` table of a dataset: sizes of a deployment in blocks, and its commit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvtrace.api.setup import Setup, main_domain
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.exec.progress import Progress
from kvtrace.reuse.capacities import blocks_of_bytes
from kvtrace.reuse.pooling import Level, PoolPlan, Routing, build_pool_hits, default_totals
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import DerivedParam
from kvtrace.store.dataset import Dataset
from kvtrace.store.derived import is_derived_with, write_derived
from kvtrace.store.lock import OutputLock

ASSUMED_INSTANCES: Final = (2, 4, 8)
"""Shown by `analyze` beside its own assumption where nobody says how many instances there are."""
ONE_PASS_ROUTINGS: Final[tuple[Routing, ...]] = ("round_robin", "session_sticky", "kv_centric")
"""Routings that do not depend on the capacity: one pass gives every capacity."""
MOST_REQUESTS: Final = 100_000
"""Up to here `analyze` makes the table unasked: a router walks the requests one by one."""
TABLE: Final = "pool_hits"


def block_bytes(deployment: Deployment, block_tokens: int) -> float:
    """KV bytes of a full block, one copy."""
    return deployment.kv_bytes_per_token_unreplicated * block_tokens


def fleet_bytes(
    instance_bytes: float, deployment: Deployment, *, instances: int, block_tokens: int
) -> float:
    """Bytes, of one copy, of the whole blocks that a tier of this size holds on all instances.

    Rounded up, so that a division by the bytes of a block gives these blocks again.
    """
    blocks = blocks_of_bytes(instance_bytes, deployment.kv_bytes_per_token * block_tokens)
    return float(math.ceil(blocks * instances * block_bytes(deployment, block_tokens)))


def level_of(deployment: Deployment, fleet: Fleet, block_tokens: int) -> Level:
    """HBM and idle DRAM of an instance and the fleet's pool, in blocks.

    All HBM that is left beside the weights counts as cache. Tensor-parallel replicas of KV take
    room in HBM and DRAM, not in the pool.
    """
    own = deployment.kv_bytes_per_token * block_tokens
    return Level(
        hbm_blocks=blocks_of_bytes(deployment.group_cache_bytes, own),
        dram_blocks=blocks_of_bytes(fleet.dram_idle_bytes_per_instance.value, own),
        pool_blocks=blocks_of_bytes(
            fleet.pool_dram_bytes.value, block_bytes(deployment, block_tokens)
        ),
    )


def plan_pools(
    dataset: Dataset,
    trace: RequestTrace,
    level: Level,
    *,
    instances: Sequence[int],
    routings: Sequence[Routing],
    totals: Sequence[int] = (),
) -> PoolPlan:
    """What is to be computed; without `totals` round capacities up to the distinct blocks."""
    cases = {level, replace(level, dram_blocks=0)}
    return PoolPlan(
        cache_domain=main_domain(dataset.manifest) or 0,
        instances=tuple(sorted(set(instances))),
        routings=tuple(dict.fromkeys(routings)),
        total_capacities=tuple(totals) or default_totals(trace.distinct_blocks),
        levels=tuple(one for one in cases if one.pool_blocks and one.private_blocks),
    )


def derive_pools(
    dataset: Dataset, trace: RequestTrace, plan: PoolPlan, *, lock: OutputLock | None = None
) -> Dataset:
    """The dataset with the `pool_hits` of this plan; what is there already stays.

    Raises:
        OutputError: the folder cannot be written, or another run holds it.
    """
    params = _params(trace, plan)
    if is_derived_with(dataset, TABLE, params):
        return dataset
    return write_derived(dataset, TABLE, build_pool_hits(trace, plan), params, lock=lock)


def derive_for_audit(
    dataset: Dataset,
    trace: RequestTrace,
    setup: Setup,
    watch: Progress,
    *,
    is_full: bool,
    lock: OutputLock | None = None,
) -> Dataset:
    """What `analyze` makes unasked: at the stated number of instances, else at a few.

    The number that the replays assume is among the few: the verdict can be read beside the table.

    Nothing where the trace is long and nobody asked for everything. `trace` has blocks.
    """
    if trace.requests > MOST_REQUESTS and not is_full:
        return dataset
    watch.start("pooling")
    stated = next((one for one in setup.settings if one.name == "instances"), None)
    is_stated = stated is not None and stated.is_confirmed
    instances = (setup.fleet.instances, *(() if is_stated else ASSUMED_INSTANCES))
    level = level_of(setup.deployment, setup.fleet, trace.block_size_tokens)
    plan = plan_pools(dataset, trace, level, instances=instances, routings=ONE_PASS_ROUTINGS)
    derived = derive_pools(dataset, trace, plan, lock=lock)
    counts = ", ".join(map(str, plan.instances))
    watch.finish(f"on {counts} instance{'' if counts == '1' else 's'}")
    return derived


def _params(trace: RequestTrace, plan: PoolPlan) -> dict[str, DerivedParam]:
    """What the rows follow from, beside the dataset itself."""
    named = int((trace.session >= 0).sum())
    sizes = {
        field: sorted({getattr(level, field) for level in plan.levels})
        for field in ("hbm_blocks", "dram_blocks", "pool_blocks")
    }
    return {
        "cache_domain": plan.cache_domain,
        "instances": list(plan.instances),
        "routings": list(plan.routings),
        "total_capacity_blocks": list(plan.total_capacities),
        **{field: list(values) for field, values in sizes.items()},
        "match_weight": plan.match_weight,
        "requests_with_session": named,
    }
