"""Prompt tokens that are left to compute beside one LRU cache."""

from __future__ import annotations

import numpy as np

from kvtrace.reuse.distance import stack_distances
from kvtrace.reuse.runs import Runs, cut_runs
from kvtrace.schema.arrays import IntArray, RequestTrace


def uncached_tokens(trace: RequestTrace, capacity_blocks: int) -> IntArray:
    """(requests,) prompt tokens that an LRU cache of so many blocks does not serve.

    Formula: prompt - min(hit blocks · block size, prompt - 1), with a hit of
    clamp(C - d + 1, 0, length) blocks of an atom at stack distance d.
    Assumes: one cache for all requests, which holds a block as soon as its request has arrived.
    """
    atoms = cut_runs(Runs(trace.run_offset, trace.run_start, trace.run_blocks))
    if not len(atoms.ref):
        return trace.prompt_tokens
    found = stack_distances(atoms, atoms.blocks)
    length = atoms.blocks[atoms.ref]
    reached = np.clip(capacity_blocks - found.blocks + 1, 0, length)
    hits = np.zeros(trace.requests, dtype=np.int64)
    np.add.at(hits, atoms.request, np.where(found.is_reusable, reached, 0))
    most = np.maximum(trace.prompt_tokens - 1, 0)
    served = np.minimum(hits * trace.block_size_tokens, most)
    return np.asarray(trace.prompt_tokens - served, dtype=np.int64)
