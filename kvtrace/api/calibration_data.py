"""From a dataset to the arrays that a calibration fits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from kvtrace.cost.calibration import MoveTimes, RequestTimes
from kvtrace.schema.arrays import FloatArray
from kvtrace.store.dataset import Dataset
from kvtrace.units import NS_PER_S


def request_times(dataset: Dataset) -> tuple[RequestTimes, pl.Series]:
    """What the `ok` headline requests took, in order of arrival, and their request keys."""
    rows = (
        dataset.table("requests")
        .filter((pl.col("status") == "ok") & pl.col("is_headline"))
        .with_columns(
            pl.when(pl.col("clock") != "order").then("arrived_at_ns").alias("arrived_at_ns")
        )
        .sort("arrived_at_ns", "request_key", nulls_last=True)
    )
    first = rows["arrived_at_ns"].min()
    arrived = rows["arrived_at_ns"] - (first if isinstance(first, int) else 0)
    times = RequestTimes(
        arrived_s=_floats(arrived) / NS_PER_S,
        prompt_tokens=_floats(rows["prompt_tokens"]),
        cached_tokens=_floats(rows["cached_tokens"]),
        output_tokens=_floats(rows["output_tokens"]),
        queue_s=_floats(rows["queue_ns"]) / NS_PER_S,
        prefill_s=_floats(rows["prefill_ns"]) / NS_PER_S,
        ttft_s=_floats(rows["ttft_ns"]) / NS_PER_S,
        tpot_s=_floats(rows["tpot_ns"]) / NS_PER_S,
        e2e_s=_floats(rows["e2e_ns"]) / NS_PER_S,
        is_ttft_of_prefill=(rows["ttft_from"] == "scheduled").fill_null(value=False).to_numpy(),
    )
    return times, rows["request_key"]


def move_times(dataset: Dataset) -> Iterator[MoveTimes]:
    """The observed moves, path by path in order of their names, each by its start."""
    rows = dataset.table("transfers").filter(pl.col("path").is_not_null())
    for path in sorted(rows["path"].unique().to_list()):
        moves = rows.filter(pl.col("path") == path).sort(
            "started_at_ns", "transfer_key", nulls_last=True
        )
        first = moves["started_at_ns"].min()
        started = moves["started_at_ns"] - (first if isinstance(first, int) else 0)
        yield MoveTimes(
            path=path,
            started_s=_floats(started) / NS_PER_S,
            moved_bytes=_floats(moves["moved_bytes"]),
            seconds=_floats(moves["duration_ns"]) / NS_PER_S,
            ranks=_floats(moves["ranks"]),
        )


def by_key(keys: pl.Series, values: FloatArray, wanted: np.ndarray) -> FloatArray:
    """(wanted,) the values of these request keys; NaN for keys without."""
    found = pl.DataFrame({"request_key": wanted}).join(
        pl.DataFrame({"request_key": keys, "value": values}),
        on="request_key",
        how="left",
        maintain_order="left",
    )
    return _floats(found["value"])


def _floats(column: pl.Series) -> FloatArray:
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
