"""One policy, one size: which kernel runs, on what, and what it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from kvtrace.reuse.policies.arc import arc_hits
from kvtrace.reuse.policies.blocks import Admission, BlockTrace, Served, Weight
from kvtrace.reuse.policies.kernels import Argument, Kernel, Mode, is_worth_compiling, run_kernel
from kvtrace.reuse.policies.lru import lru_facts, lru_served
from kvtrace.reuse.policies.ranked import (
    FIFO,
    LEAF_LRU,
    LENGTH_AWARE,
    LFU,
    flat_fifo_hits,
    ranked_hits,
)
from kvtrace.reuse.policies.s3_fifo import SMALL_SHARE, s3_fifo_hits
from kvtrace.schema.arrays import IntArray

PolicyName: TypeAlias = Literal[
    "lru", "leaf_lru", "fifo", "lfu", "arc", "s3_fifo", "length_aware", "ttl", "flat_fifo"
]
POLICIES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)
_RANKED: Final[dict[str, int]] = {
    "fifo": FIFO,
    "leaf_lru": LEAF_LRU,
    "lfu": LFU,
    "length_aware": LENGTH_AWARE,
}


def serve(
    trace: BlockTrace,
    policy: PolicyName,
    capacities: Sequence[int],
    *,
    weight: Weight = "blocks",
    admission: Admission = "all",
    ttl_ns: int | None = None,
    mode: Mode = "auto",
) -> list[Served]:
    """What a cache under this policy serves, one result a capacity (in full blocks).

    `ttl_ns` is for `ttl` only, which needs it.
    """
    if policy in ("lru", "ttl"):
        facts = lru_facts(trace, weight=weight, admission=admission)
        lives = ttl_ns if policy == "ttl" else None
        return [lru_served(facts, trace.room(one, weight), ttl_ns=lives) for one in capacities]
    is_compiled = is_worth_compiling(mode, len(trace.block) * len(capacities))
    weights = trace.weights(weight)
    admitted = trace.is_second if admission == "second_use" else np.ones_like(trace.is_second)
    served = []
    for capacity in capacities:
        room = trace.room(capacity, weight)
        common: list[Argument] = [trace.block, trace.offset, weights, admitted, room]
        kernel, own = _kernel(policy, trace, room)
        outcome = [_zeros(trace.requests), _zeros(trace.requests)]
        filled = run_kernel(kernel, [*common, *own, *outcome], is_compiled=is_compiled)
        served.append(Served(filled[-2], filled[-1]))
    return served


def _kernel(policy: str, trace: BlockTrace, room: int) -> tuple[Kernel, list[Argument]]:
    """The kernel of a policy with its own arguments, scratch included."""
    blocks, refs = trace.distinct_blocks, len(trace.block)
    zeros, none = _zeros(blocks), _zeros(blocks) - 1
    if policy == "arc":
        return arc_hits, [zeros, none, none, zeros, none, zeros, _zeros(2 * refs + 2)]
    if policy == "s3_fifo":
        small = room // SMALL_SHARE
        rings: list[Argument] = [_zeros(blocks + 1), _zeros(blocks + 1), _zeros(refs + 1)]
        ghosts = room * (SMALL_SHARE - 1) // SMALL_SHARE
        return s3_fifo_hits, [small, ghosts, zeros, zeros, none, zeros, none, zeros, *rings]
    if policy == "flat_fifo":
        return flat_fifo_hits, [zeros, _zeros(refs + 1)]
    levels = int(np.diff(trace.offset).max(initial=0)) + 1
    rule = _RANKED[policy]
    return ranked_hits, [rule, levels, none, zeros, none, zeros, none, zeros]


def _zeros(size: int) -> IntArray:
    return np.zeros(size, dtype=np.int64)
