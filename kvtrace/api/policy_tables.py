"""The `policy_hits` table of a dataset: traces, commit, and what `analyze` makes unasked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from kvtrace.api.pool_tables import level_of
from kvtrace.api.setup import Setup
from kvtrace.exec.progress import Progress, counted
from kvtrace.reuse.capacities import parse_capacities
from kvtrace.reuse.policies.blocks import BlockTrace, block_trace
from kvtrace.reuse.policies.run import POLICIES
from kvtrace.reuse.policies.table import Plan, build_policy_hits
from kvtrace.reuse.trace import build_trace
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.schema.manifest import DerivedParam
from kvtrace.store.dataset import Dataset
from kvtrace.store.derived import is_derived_with, write_derived
from kvtrace.store.lock import OutputLock

TABLE: Final = "policy_hits"
DEFAULT_CAPACITY: Final = "1%,2%,5%,10%,20%,50%,100%"
MOST_BLOCK_REFS: Final = 2_000_000
"""Up to here `analyze` makes the table unasked: the bounds sort every reference."""
_TTL_NS: Final = 300 * 10**9
"""Time to live that `analyze --depth full` shows among the policies."""


def derive_for_audit(
    dataset: Dataset,
    trace: RequestTrace,
    setup: Setup,
    watch: Progress,
    *,
    is_full: bool,
    lock: OutputLock | None = None,
) -> Dataset:
    """What `analyze` makes unasked: LRU and the bounds at the sizes of the tiers at hand.

    With `is_full` every policy and admission, on a grid of capacities too; otherwise nothing where
    the trace is long. `trace` has blocks.
    """
    if not is_full and (dataset.manifest.totals.block_refs or 0) > MOST_BLOCK_REFS:
        return dataset
    watch.start("policies")
    capacities = tier_capacities(setup, trace)
    traces = None
    if is_full:
        traces = block_traces(dataset)
        grid = parse_capacities(
            DEFAULT_CAPACITY, distinct_blocks=trace.distinct_blocks, block_bytes=None
        )
        capacities = tuple(sorted({*capacities, *grid}))
        has_clock = any(one.has_clock for _, one in traces)
        plan = Plan(
            capacities,
            policies=POLICIES,
            admissions=("all", "second_use"),
            ttl_ns=_TTL_NS if has_clock else None,
        )
    else:
        plan = Plan(capacities)
    derived = derive_policies(dataset, plan, traces, lock=lock)
    what = "policy" if len(plan.policies) == 1 else "policies"
    at = counted(len(capacities), "size")
    watch.finish(f"{len(plan.policies)} {what} and the bounds of all, at {at}")
    return derived


def tier_capacities(setup: Setup, trace: RequestTrace) -> tuple[int, ...]:
    """Blocks of all HBM, of all HBM and idle DRAM, and of the pool, up to the distinct blocks."""
    level = level_of(setup.deployment, setup.fleet, trace.block_size_tokens)
    instances = setup.fleet.instances
    sizes = (
        level.hbm_blocks * instances,
        (level.hbm_blocks + level.dram_blocks) * instances,
        level.pool_blocks,
    )
    return tuple(sorted({min(size, trace.distinct_blocks) for size in sizes if size > 0}))


def derive_policies(
    dataset: Dataset,
    plan: Plan,
    traces: Sequence[tuple[int, BlockTrace]] | None = None,
    *,
    lock: OutputLock | None = None,
) -> Dataset:
    """The dataset with the `policy_hits` of this plan; what is there already stays.

    `traces` are the dataset's `block_traces`, where the caller has them.

    Raises:
        OutputError: the folder cannot be written, or another run holds it.
    """
    params: dict[str, DerivedParam] = {
        "capacity_blocks": list(plan.capacities),
        "policies": list(plan.policies),
        "admissions": list(plan.admissions),
        "weight": plan.weight,
        "ttl_ns": plan.ttl_ns,
    }
    if is_derived_with(dataset, TABLE, params):
        return dataset
    rows = build_policy_hits(block_traces(dataset) if traces is None else traces, plan)
    return write_derived(dataset, TABLE, rows, params, lock=lock)


def block_traces(dataset: Dataset) -> list[tuple[int, BlockTrace]]:
    """The cache domains that have blocks, as (number, trace), tokens counted as reuse/ does."""
    requests, blocks = dataset.table("requests"), dataset.table("blocks")
    reuse = dataset.table("reuse")
    found = []
    for domain in dataset.manifest.domains:
        trace = build_trace(requests, blocks, domain)
        if trace.distinct_blocks:
            counted = _counted_tokens(trace, requests, reuse)
            found.append((domain.cache_domain, block_trace(trace, counted_tokens=counted)))
    return found


def _counted_tokens(trace: RequestTrace, requests: pl.DataFrame, reuse: pl.DataFrame) -> IntArray:
    """(requests,) tokens in blocks as the reuse facts have them; 0 where no prompt is known."""
    known = requests.filter(pl.col("prompt_tokens").is_not_null()).select("request_key")
    held = reuse.group_by("request_key").agg(pl.col("token_count").sum())
    keys = pl.DataFrame({"request_key": trace.request_key})
    joined = keys.join(
        held.join(known, on="request_key", how="semi"),
        on="request_key",
        how="left",
        maintain_order="left",
    )
    return np.asarray(joined["token_count"].fill_null(0).to_numpy(), dtype=np.int64)
