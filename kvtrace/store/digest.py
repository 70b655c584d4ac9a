"""The logical digest of a dataset: what its rows say, whatever files, parts or salt held them.

Rows are in an order that has nothing to do with files: requests by source, arrival and key. Keys
made of file number and offset are replaced by ranks in that order, keyed hashes by the rank of
their first appearance; where a record stood in its file is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from kvtrace.schema.table import Table
from kvtrace.schema.tables import TABLES

_TIMES: Final = {
    "requests": ("request_key", "arrived_at_ns"),
    "samples": ("sample_key", "observed_at_ns"),
    "transfers": ("transfer_key", "started_at_ns"),
    "block_events": ("event_key", "observed_at_ns"),
}
_REQUEST_KEYS: Final = ("request_key", "previous_request_key", "first_request_key")
_LEFT_OUT: Final = {
    "requests": frozenset({"line"}),
    "rejects": frozenset({"file_id", "line", "byte_offset", "digest"}),
}
_DIGEST_BYTES: Final = 16


def digest_tables(frames: Mapping[str, pl.DataFrame]) -> str:
    """BLAKE2b-128 of the tables, in hexadecimal; a table that is not given counts as absent."""
    hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    requests = frames.get("requests")
    ranks = None if requests is None else _ranks(requests, *_TIMES["requests"])
    for name in sorted(frames):
        table = TABLES[name]
        frame = frames[name]
        hashed.update(f"{name}:{len(frame)}\n".encode())
        places, order = _canonical(table, frame, ranks)
        for column in table.columns:
            if column.name not in _LEFT_OUT.get(name, ()):
                series = places[column.name] if column.name in places else frame[column.name]
                series = series.gather(order)
                if column.keyed:
                    series = _first_appearance(series)
                hashed.update(f"{column.name}\n".encode())
                _feed(hashed, series)
    return hashed.hexdigest()


def _ranks(frame: pl.DataFrame, key: str, time: str) -> pl.DataFrame:
    """(key, rank) in order of source, time (unknown last) and key."""
    keys = frame.select(key, "source_id", time).unique(subset=key)
    ordered = keys.sort("source_id", time, key, nulls_last=True)
    return ordered.select(key).with_columns(
        pl.Series("rank", np.arange(len(ordered), dtype=np.int64))
    )


def _canonical(
    table: Table, frame: pl.DataFrame, ranks: pl.DataFrame | None
) -> tuple[pl.DataFrame, pl.Series]:
    """The file-bound keys replaced by ranks, and the numbers of the rows in total order.

    Columns are put in order one at a time: a wide frame is never copied whole.
    """
    if table.name == "rejects":
        order = ("reason", "detail", "byte_length")
        return frame.select(order), frame.select(
            pl.arg_sort_by(*order, nulls_last=True)
        ).to_series()
    own = _TIMES.get(table.name)
    wanted = {*table.order_by, *(own[:1] if own is not None else _REQUEST_KEYS)}
    keys = frame.select(name for name in frame.columns if name in wanted)
    if own is not None:
        keys = _replaced(keys, own[0], _ranks(frame, *own))
    elif ranks is not None:
        for name in _REQUEST_KEYS:
            if name in keys.columns:
                keys = _replaced(keys, name, ranks.rename({"request_key": name}))
    return keys, keys.select(pl.arg_sort_by(*table.order_by)).to_series()


def _replaced(frame: pl.DataFrame, name: str, ranks: pl.DataFrame) -> pl.DataFrame:
    joined = frame.join(ranks, on=name, how="left", maintain_order="left")
    return joined.with_columns(pl.col("rank").alias(name)).drop("rank")


def _first_appearance(series: pl.Series) -> pl.Series:
    """Ranks of the distinct values in order of first appearance; null stays null."""
    distinct = series.drop_nulls().unique(maintain_order=True)
    if len(distinct) == len(series):
        return pl.Series(np.arange(len(series), dtype=np.int64))
    ranks = pl.DataFrame(
        {"value": distinct, "rank": np.arange(len(distinct), dtype=np.int64)},
        schema={"value": series.dtype, "rank": pl.Int64},
    )
    joined = series.to_frame("value").join(ranks, on="value", how="left", maintain_order="left")
    return joined["rank"]


def _feed(hashed: hashlib.blake2b, series: pl.Series) -> None:
    """Null mask, then fixed-width values, or lengths and text."""
    hashed.update(np.packbits(series.is_null().to_numpy()).tobytes())
    if series.dtype == pl.List:
        hashed.update(series.list.len().fill_null(0).to_numpy().astype("<i8").tobytes())
        series = series.explode(empty_as_null=False, keep_nulls=False)
    if series.dtype == pl.String:
        filled = series.fill_null("")
        hashed.update(filled.str.len_bytes().to_numpy().astype("<i8").tobytes())
        hashed.update("".join(filled).encode())
    elif series.dtype == pl.Float64:
        hashed.update(series.fill_null(0.0).to_numpy().astype("<f8").tobytes())
    elif series.dtype == pl.Boolean:
        hashed.update(np.packbits(series.fill_null(False).to_numpy()).tobytes())
    else:
        hashed.update(series.cast(pl.Int64).fill_null(0).to_numpy().astype("<i8").tobytes())
