"""What a dataset holds of the requests that were replayed: their lines and measured times."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from kvtrace.audit.logged import UNKNOWN, LoggedRequests
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.store.dataset import Dataset
from kvtrace.units import NS_PER_S

_FILE_SHIFT: Final = 44
_COLUMNS: Final = ("line", "cached_tokens", "ttft_ns", "queue_ns", "prefill_ns")
_FROM: Final = ("arrival", "client")


def logged_requests(dataset: Dataset, trace: RequestTrace | None) -> LoggedRequests | None:
    """Of every request of `trace`; null without one. A request that growth made is unknown."""
    if trace is None:
        return None
    keys = pl.DataFrame({"request_key": trace.request_key}, schema={"request_key": pl.Int64})
    rows = dataset.select("requests", ("request_key", "ttft_from", *_COLUMNS), of=keys)
    is_from_arrival = pl.col("ttft_from").is_in(_FROM)
    known = rows.with_columns(
        pl.when(is_from_arrival).then(pl.col("ttft_ns")).otherwise(None).alias("ttft_ns")
    )
    placed = keys.join(known, on="request_key", how="left", maintain_order="left")
    is_logged = placed["line"].is_not_null().to_numpy()
    return LoggedRequests(
        files=tuple(entry.path for entry in dataset.manifest.files),
        file=np.where(is_logged, trace.request_key >> _FILE_SHIFT, UNKNOWN),
        line=_counts(placed["line"]),
        cached_tokens=_counts(placed["cached_tokens"]),
        ttft_s=_seconds(placed["ttft_ns"]),
        queue_s=_seconds(placed["queue_ns"]),
        prefill_s=_seconds(placed["prefill_ns"]),
    )


def _counts(values: pl.Series) -> IntArray:
    return values.fill_null(UNKNOWN).cast(pl.Int64).to_numpy()


def _seconds(values: pl.Series) -> FloatArray:
    return (values.cast(pl.Float64) / NS_PER_S).fill_null(float("nan")).to_numpy()
