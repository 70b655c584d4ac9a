"""Blocks that a request's output fills, as far as the next turn of its session shows their ids.

An engine with a prefix cache keeps the full blocks of what it generates, and the next turn, whose
prompt repeats the answer, finds them. A trace of prompts holds no ids of generated blocks; but the
next turn's prompt does: behind the blocks of the earlier prompt stand those of its answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.replay.closed_loop import turns_before
from kvtrace.schema.arrays import IntArray, RequestTrace


@dataclass(frozen=True, slots=True)
class GeneratedRuns:
    """One run of dense block ids a request: full blocks that end in its output."""

    start: IntArray
    """(requests,) first id; meaningless where there is none."""
    blocks: IntArray
    """(requests,) length; 0 where no later turn shows any."""


def generated_runs(trace: RequestTrace) -> GeneratedRuns:
    """What each request's output adds to a cache, read off the next turn of its session.

    Formula: blocks floor(prompt / size) .. floor((prompt + output) / size) of the next turn, as far
    as they are one run and full there, where the next turn's prompt holds all full blocks of this
    one.
    Assumes: the next turn repeats the answer token by token behind the prompt. Where reasoning is
    left out of it or a template changes, fewer blocks match: this is an upper bound.
    """
    start = np.zeros(trace.requests, dtype=np.int64)
    blocks = np.zeros(trace.requests, dtype=np.int64)
    runs = GeneratedRuns(start, blocks)
    if not trace.output_known or not len(trace.run_start):
        return runs
    before = turns_before(trace)
    later = np.flatnonzero(before >= 0)
    earlier = before[later]
    size = trace.block_size_tokens
    held = trace.blocks_per_request()
    whole = np.minimum(held, trace.prompt_tokens // size)
    has = whole[earlier]
    reached = (trace.prompt_tokens[earlier] + trace.output_tokens[earlier]) // size
    wanted = np.minimum(reached, whole[later]) - has
    is_kept = (wanted > 0) & (has < held[later])
    later, earlier, has, wanted = later[is_kept], earlier[is_kept], has[is_kept], wanted[is_kept]
    last = np.maximum(has - 1, 0)
    is_prefix = (has == 0) | (_ids(trace, later, last)[0] == _ids(trace, earlier, last)[0])
    later, earlier, has, wanted = (one[is_prefix] for one in (later, earlier, has, wanted))
    first, left = _ids(trace, later, has)
    start[earlier] = first
    blocks[earlier] = np.minimum(wanted, left)
    return runs


def _ids(trace: RequestTrace, requests: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
    """(id of the block at `place` of each request, blocks from there to the end of its run)."""
    before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(trace.run_blocks)))
    at = before[trace.run_offset[requests]] + place
    run = np.searchsorted(before, at, side="right") - 1
    run = np.minimum(run, len(trace.run_start) - 1)
    inside = at - before[run]
    return trace.run_start[run] + inside, trace.run_blocks[run] - inside
