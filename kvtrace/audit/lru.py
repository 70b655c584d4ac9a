"""Hits of one LRU cache by request: what a rival that nobody replayed could serve at most.

The idealised cache of the capacity curve (`queries/reuse/capacity_curve.sql`), request by request:
blocks are there at once, and nothing is pinned.
"""

from __future__ import annotations

import numpy as np

from kvtrace.reuse.distance import stack_distances
from kvtrace.reuse.runs import Runs, cut_runs
from kvtrace.schema.arrays import IntArray, RequestTrace


def lru_hit_tokens(trace: RequestTrace, capacity_blocks: int) -> IntArray:
    """(requests,) tokens that one LRU cache of this capacity serves, empty before the trace.

    Formula: an atom at distance d (from 1) gives clamp(C - d + 1, 0, its blocks); at least the last
    prompt token is computed.
    """
    hits = np.zeros(trace.requests, dtype=np.int64)
    if not len(trace.run_start) or capacity_blocks <= 0:
        return hits
    atoms = cut_runs(Runs(trace.run_offset, trace.run_start, trace.run_blocks))
    distances = stack_distances(atoms, atoms.blocks)
    blocks = np.clip(capacity_blocks - distances.blocks + 1, 0, atoms.blocks[atoms.ref])
    np.add.at(hits, atoms.request, np.where(distances.is_reusable, blocks, 0))
    most = np.maximum(trace.prompt_tokens - 1, 0)
    return np.asarray(np.minimum(hits * trace.block_size_tokens, most), dtype=np.int64)
