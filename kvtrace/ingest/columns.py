"""Typed rows of one file as columns: ids hashed, keys made, blocks flat. No row object survives."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from kvtrace.ingest.contract import Record, RequestRow, Row, SampleRow, TransferRow
from kvtrace.ingest.frame import LongRecord
from kvtrace.ingest.hashing import KeyedHasher, finished
from kvtrace.schema.arrays import IntArray
from kvtrace.schema.manifest import Clock
from kvtrace.schema.tables import REJECTS, REQUESTS, SAMPLES, TRANSFERS

FILE_KEY_STEP: Final = 1 << 44
"""Keys are file number × this + byte offset."""
COPY_DIGEST: Final = "_copy_digest"
"""Helper column: hash of the bytes of the one record behind a row; null if there were several."""
STRIPPED_ID: Final = "_stripped_id_key"
"""Helper column: hash of the request id without the 8-hex suffix that newer vLLM engines add."""
_FLUSH_ROWS: Final = 8192
_VLLM_SUFFIX: Final = re.compile(r"-[0-9a-f]{8}\Z")
_MAX_INT32: Final = 2**31 - 1

UIntArray = npt.NDArray[np.uint64]


@dataclass(slots=True)
class FileRows:
    """The rows of one file. Frames have the columns of the schema; requests also the helpers.

    `source_id` and `is_headline` are placeholders until sources are assigned.
    """

    requests: pl.DataFrame
    samples: pl.DataFrame
    transfers: pl.DataFrame
    rejects: pl.DataFrame
    observations: int
    block_request_keys: IntArray
    """(requests with block keys,) request_key."""
    block_counts: IntArray
    """(requests with block keys,)"""
    block_keys: UIntArray
    """(sum of block_counts,) keys of one request after the other."""


class RowCollector:
    """Takes the rows and rejects of one file as they come."""

    def __init__(self, file_id: int, hasher: KeyedHasher) -> None:
        self._file_id = file_id
        self._base = file_id * FILE_KEY_STEP
        self._hasher = hasher
        self._batch: list[RequestRow] = []
        self._columns: dict[str, list[object]] = {
            name: [] for name in RequestRow.__struct_fields__ if name != "block_keys"
        }
        self._copy_digests: list[int | None] = []
        self._block_rows = array("q")
        self._block_counts = array("q")
        self._block_keys = array("Q")
        self._samples: list[SampleRow] = []
        self._transfers: list[TransferRow] = []
        self._rejects: list[tuple[int, int, int, str, str | None, int]] = []
        self.rejected_by_reason: dict[str, int] = {}

    def add(self, row: Row, current: Record | None) -> None:
        """Take a row; `current` is the record that the reader was given last."""
        if isinstance(row, RequestRow):
            self._batch.append(row)
            digest = None
            if row.request_id is not None and current is not None and current.offset == row.offset:
                digest = self._hasher.data_key("record", current.data)
            self._copy_digests.append(digest)
            if len(self._batch) >= _FLUSH_ROWS:
                self._flush()
        elif isinstance(row, SampleRow):
            self._samples.append(row)
        else:
            self._transfers.append(row)

    def reject(self, record: Record, reason: str, detail: str | None = None) -> None:
        """Take an unusable record: where, why and a hash, never its text."""
        digest = self._hasher.data_key("record", record.data)
        self._reject(record.offset, record.line, len(record.data), reason, detail, digest)

    def reject_long(self, long: LongRecord) -> None:
        """Take a record that was too long to be read."""
        digest = finished(long.hashed)
        self._reject(long.offset, long.line, long.byte_length, "record_too_long", None, digest)

    def _reject(
        self, offset: int, line: int, length: int, reason: str, detail: str | None, digest: int
    ) -> None:
        self._rejects.append((line, offset, length, reason, detail, digest))
        self.rejected_by_reason[reason] = self.rejected_by_reason.get(reason, 0) + 1

    @property
    def rejected(self) -> int:
        """Records rejected so far."""
        return len(self._rejects)

    def _flush(self) -> None:
        if not self._batch:
            return
        first_row = len(self._columns["offset"])
        for number, row in enumerate(self._batch, first_row):
            if row.block_keys is not None:
                self._block_rows.append(number)
                self._block_counts.append(len(row.block_keys))
                self._block_keys.extend(row.block_keys)
        transposed = zip(*map(msgspec.structs.astuple, self._batch), strict=True)
        for name, values in zip(RequestRow.__struct_fields__, transposed, strict=True):
            if name != "block_keys":
                self._columns[name].extend(values)
        self._batch.clear()

    def finish(self, clock: Clock) -> FileRows:
        """The columns of the file; times that the clock cannot give are null."""
        self._flush()
        keys = self._keys([int(str(at)) for at in self._columns["offset"]])
        return FileRows(
            requests=self._requests(keys, clock),
            samples=self._sample_frame(clock),
            transfers=self._transfer_frame(clock),
            rejects=self._reject_frame(),
            observations=len(self._samples),
            block_request_keys=keys[np.frombuffer(self._block_rows, dtype=np.int64)],
            block_counts=np.frombuffer(self._block_counts, dtype=np.int64),
            block_keys=np.frombuffer(self._block_keys, dtype=np.uint64),
        )

    def _keys(self, offsets: Sequence[int]) -> IntArray:
        """Unique keys; several rows of one record get its offset, +1, +2, …"""
        keys = np.asarray(offsets, dtype=np.int64) + self._base
        if len(np.unique(keys)) == len(keys):
            return keys
        order = np.argsort(keys, kind="stable")
        is_first = np.concatenate(([True], np.diff(keys[order]) != 0))
        position = np.arange(len(keys))
        keys[order] += position - np.maximum.accumulate(np.where(is_first, position, 0))
        return keys

    def _requests(self, keys: IntArray, clock: Clock) -> pl.DataFrame:
        columns = self._columns
        derived: dict[str, Sequence[object] | npt.NDArray[np.generic] | pl.Series] = {
            "request_key": keys,
            "source_id": np.zeros(len(keys), dtype=np.int32),
            "is_headline": np.zeros(len(keys), dtype=bool),
            "request_id_key": self._hashed(columns["request_id"], "request"),
            "session_key": self._hashed(columns["session_id"], "session"),
            "parent_key": self._hashed(columns["parent_id"], "request"),
            "tenant_key": self._hashed(columns["tenant"], "tenant"),
            "turn": [_int32(value) for value in columns["turn"]],
            "clock": [clock] * len(keys),
            "flags": _flag_lists(columns["flags"]),
        }
        if clock == "order":
            derived["arrived_at_ns"] = [None] * len(keys)
        series = [
            pl.Series(name, derived[name] if name in derived else columns[name], dtype=dtype)
            for name, dtype in REQUESTS.polars_schema().items()
        ]
        series.append(pl.Series(COPY_DIGEST, self._copy_digests, dtype=pl.UInt64))
        series.append(pl.Series(STRIPPED_ID, self._stripped_ids(), dtype=pl.UInt64))
        return pl.DataFrame(series)

    def _hashed(self, texts: Iterable[object], domain: str) -> list[int | None]:
        hasher = self._hasher
        if domain == "request":
            return [None if text is None else hasher.text_key("request", text) for text in texts]  # type: ignore[arg-type]
        kind = "session" if domain == "session" else "tenant"
        return [None if text is None else hasher.remembered_key(kind, text) for text in texts]  # type: ignore[arg-type]

    def _stripped_ids(self) -> list[int | None]:
        stripped: list[int | None] = []
        for text in self._columns["request_id"]:
            found = None if text is None else _VLLM_SUFFIX.search(str(text))
            key = None
            if found is not None:
                key = self._hasher.text_key("request", str(text)[: found.start()])
            stripped.append(key)
        return stripped

    def _sample_frame(self, clock: Clock) -> pl.DataFrame:
        keys = self._keys([row.offset for row in self._samples]).tolist()
        rows = [
            (
                key,
                0,
                None if clock == "order" else row.observed_at_ns,
                clock,
                row.engine,
                *msgspec.structs.astuple(metric)[:3],
                metric.hit_unit,
                metric.window,
                metric.window_ns,
                metric.numerator,
                metric.denominator,
            )
            for key, row in zip(keys, self._samples, strict=True)
            for metric in row.metrics
        ]
        return pl.DataFrame(rows, schema=SAMPLES.polars_schema(), orient="row")

    def _transfer_frame(self, clock: Clock) -> pl.DataFrame:
        keys = self._keys([row.offset for row in self._transfers]).tolist()
        hashed = self._hashed([row.request_id for row in self._transfers], "request")
        rows = [
            (
                key,
                0,
                request_id,
                None if clock == "order" else row.started_at_ns,
                clock,
                row.direction,
                row.path,
                row.moved_bytes,
                row.moved_tokens,
                row.duration_ns,
                _int32(row.ranks),
            )
            for key, request_id, row in zip(keys, hashed, self._transfers, strict=True)
        ]
        return pl.DataFrame(rows, schema=TRANSFERS.polars_schema(), orient="row")

    def _reject_frame(self) -> pl.DataFrame:
        rows = [(self._file_id, *reject) for reject in self._rejects]
        return pl.DataFrame(rows, schema=REJECTS.polars_schema(), orient="row")


def _flag_lists(flags: list[object]) -> pl.Series:
    """Tuples of slugs as a list column (through one text a row: a series a row is slow)."""
    texts = pl.Series([",".join(row) for row in flags], dtype=pl.String)  # type: ignore[arg-type]
    empty = pl.lit([], dtype=pl.List(pl.String))
    split = pl.when(pl.col("") == "").then(empty).otherwise(pl.col("").str.split(","))
    return texts.to_frame("").select(split.alias("flags")).to_series()


def _int32(value: object) -> int | None:
    """A count that fits its column; one that does not is unknown."""
    return value if isinstance(value, int) and 0 <= value <= _MAX_INT32 else None
