"""The rows of `policy_hits`: every policy that is asked for, and the bounds, at every capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from kvtrace.reuse.policies.blocks import Admission, BlockTrace, Served, Weight
from kvtrace.reuse.policies.bounds import Bound, Intervals, find_intervals, find_optimum, unlimited
from kvtrace.reuse.policies.kernels import Mode, is_worth_compiling
from kvtrace.reuse.policies.run import PolicyName, serve
from kvtrace.schema.facts import POLICY_HITS

Cell = int | str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated."""

    capacities: tuple[int, ...]
    """Blocks."""
    policies: tuple[PolicyName, ...] = ("lru",)
    """LRU always runs, since the gaps start from it."""
    admissions: tuple[Admission, ...] = ("all",)
    weight: Weight = "blocks"
    ttl_ns: int | None = None
    """For `ttl`."""


def build_policy_hits(
    traces: Sequence[tuple[int, BlockTrace]], plan: Plan, *, mode: Mode = "auto"
) -> pl.DataFrame:
    """The table for these cache domains (number, trace), each with a cache to itself."""
    rows = [row for number, trace in traces for row in _rows_of(number, trace, plan, mode)]
    frame = pl.DataFrame(rows, schema=POLICY_HITS.polars_schema())
    return frame.sort(POLICY_HITS.order_by, nulls_last=True)


def _rows_of(number: int, trace: BlockTrace, plan: Plan, mode: Mode) -> list[dict[str, Cell]]:
    wanted = dict.fromkeys(("lru", *plan.policies))
    runs = len(plan.capacities) * len(plan.admissions)
    chosen: Mode = "numba" if is_worth_compiling(mode, len(trace.block) * runs) else "python"
    rows: list[dict[str, Cell]] = []
    best = [Bound(0, 0)] * len(plan.capacities)
    for policy in wanted:
        if policy == "ttl" and (plan.ttl_ns is None or not trace.has_clock):
            continue
        for admission in plan.admissions:
            served = serve(
                trace,
                policy,
                plan.capacities,
                weight=plan.weight,
                admission=admission,
                ttl_ns=plan.ttl_ns,
                mode=chosen,
            )
            for place, (capacity, one) in enumerate(zip(plan.capacities, served, strict=True)):
                row = _row(number, trace, plan, capacity, policy, admission) | _served(trace, one)
                row["ttl_ns"] = plan.ttl_ns if policy == "ttl" else None
                rows.append(row)
                best[place] = _larger(best[place], _reached(trace, one))
    return rows + _bounds(number, trace, plan, best, mode)


def _bounds(
    number: int, trace: BlockTrace, plan: Plan, best: Sequence[Bound], mode: Mode
) -> list[dict[str, Cell]]:
    """Four rows a capacity; what any policy reached is feasible, so it raises the lower bound."""
    found = find_intervals(trace)
    rows = []
    for capacity, reached in zip(plan.capacities, best, strict=True):
        optimum = find_optimum(found, capacity, plan.weight, mode=mode)
        low = _larger(reached, _reached(trace, Served(optimum.low, optimum.low)))
        for policy, bound in (
            ("strict_optimum_low", low),
            ("strict_optimum_high", optimum.high),
            ("relaxed_optimum", optimum.high),
            ("unlimited", unlimited(found)),
        ):
            row = _row(number, trace, plan, capacity, policy, "all")
            row |= {"hit_blocks": bound.blocks, "hit_tokens": bound.tokens}
            if policy == "unlimited":
                row["requests_with_hit"] = _with_reuse(found)
            rows.append(row)
    return rows


def _row(
    number: int, trace: BlockTrace, plan: Plan, capacity: int, policy: str, admission: str
) -> dict[str, Cell]:
    is_tokens = plan.weight == "tokens"
    return {
        "cache_domain": number,
        "policy": policy,
        "admission": admission,
        "weight": plan.weight,
        "capacity_blocks": capacity,
        "capacity_tokens": trace.room(capacity, "tokens") if is_tokens else None,
        "ttl_ns": None,
        "block_refs": len(trace.block),
        "prompt_tokens": trace.prompt_tokens,
        "writes_blocks": None,
        "writes_tokens": None,
        "requests": trace.requests,
        "requests_with_hit": None,
    }


def _served(trace: BlockTrace, served: Served) -> dict[str, Cell]:
    reached = _reached(trace, served)
    stored = int(trace.tokens_of(served.stored_blocks).sum())
    return {
        "hit_blocks": reached.blocks,
        "hit_tokens": reached.tokens,
        "writes_blocks": int(served.stored_blocks.sum()) - reached.blocks,
        "writes_tokens": stored - reached.tokens,
        "requests_with_hit": int((served.hit_blocks > 0).sum()),
    }


def _reached(trace: BlockTrace, served: Served) -> Bound:
    tokens = int(trace.tokens_of(served.hit_blocks).sum())
    return Bound(int(served.hit_blocks.sum()), tokens)


def _larger(one: Bound, other: Bound) -> Bound:
    return Bound(max(one.blocks, other.blocks), max(one.tokens, other.tokens))


def _with_reuse(found: Intervals) -> int:
    leads = found.atoms.offset[:-1][found.atoms.offset[1:] > found.atoms.offset[:-1]]
    return int(found.is_reusable[leads].sum())
