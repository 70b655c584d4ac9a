"""What each request had to compute: as logged, else beside the HBM of today's fleet."""

from __future__ import annotations

import numpy as np
import polars as pl

from kvtrace.cost.deployment import Deployment
from kvtrace.reuse.capacities import blocks_of_bytes
from kvtrace.reuse.uncached import uncached_tokens
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.store.dataset import Dataset


def uncached_prefill_tokens(
    trace: RequestTrace, dataset: Dataset, deployment: Deployment, instances: int
) -> IntArray:
    """(requests,) prompt tokens that no cache served.

    What the logs say, where they say it of every request; else beside one LRU cache as large as
    the HBM of all instances (idealised); without blocks the whole prompt.
    """
    logged = _as_logged(trace, dataset)
    if logged is not None:
        return logged
    own = deployment.kv_bytes_per_token * trace.block_size_tokens
    hbm = blocks_of_bytes(deployment.hbm_cache_bytes, own)
    return uncached_tokens(trace, hbm * instances)


def _as_logged(trace: RequestTrace, dataset: Dataset) -> IntArray | None:
    """Null where the cached tokens of some request are unknown."""
    rows = dataset.table("requests").select("request_key", "cached_tokens")
    cached = pl.DataFrame({"request_key": trace.request_key}).join(
        rows, on="request_key", how="left", maintain_order="left"
    )["cached_tokens"]
    if cached.is_null().any():
        return None
    computed = trace.prompt_tokens - cached.to_numpy().astype(np.int64)
    return np.asarray(np.maximum(computed, 0), dtype=np.int64)
