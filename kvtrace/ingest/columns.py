"""Typed rows of one file as columns: ids hashed, keys made, blocks flat. No row object survives."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from kvtrace.ingest.contract import (
    LateArrivals,
    Record,
    RequestRow,
    Row,
    SampleRow,
    TransferRow,
)
from kvtrace.ingest.frame import LongRecord
from kvtrace.ingest.hashing import KeyedHasher, finished
from kvtrace.ingest.limits import IMPLAUSIBLE_FLAG, PLAUSIBLE_TOKENS
from kvtrace.schema.arrays import IntArray
from kvtrace.schema.manifest import Clock
from kvtrace.schema.tables import REJECTS, REQUESTS, SAMPLES, TRANSFERS

FILE_KEY_STEP: Final = 1 << 44
"""Keys are file number × this + byte offset."""
COPY_DIGEST: Final = "_copy_digest"
"""Helper column: hash of the bytes of the one record behind a row; null if there were several."""
STRIPPED_ID: Final = "_stripped_id_key"
"""Helper column: hash of the request id without the 8-hex suffix that newer vLLM engines add."""
_FLUSH_ROWS: Final = 65_536
_VLLM_SUFFIX: Final = re.compile(r"-[0-9a-f]{8}\Z")
_MAX_INT32: Final = 2**31 - 1
_MAX_NAMED_LINES: Final = 3

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
        self._frames: list[pl.DataFrame] = []
        self._rows = 0
        self._copy_digests: list[int | None] = []
        self._block_rows = array("q")
        self._block_counts = array("q")
        self._block_keys = array("Q")
        self._samples: list[SampleRow] = []
        self._transfers: list[TransferRow] = []
        self._rejects: list[tuple[int, int, int, str, str | None, int]] = []
        self.rejected_by_reason: dict[str, int] = {}
        self.implausible = 0
        """Requests with more tokens than any published context holds; they are flagged."""
        self.implausible_lines: list[int] = []
        """The first lines of those."""

    def add(self, row: Row, current: Record | None) -> None:
        """Take a row; `current` is the record that the reader was given last."""
        if isinstance(row, RequestRow):
            self._flag_implausible(row)
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

    def _flag_implausible(self, row: RequestRow) -> None:
        if max(row.prompt_tokens or 0, row.output_tokens or 0) > PLAUSIBLE_TOKENS:
            row.flags = (*row.flags, IMPLAUSIBLE_FLAG)
            self.implausible += 1
            if len(self.implausible_lines) < _MAX_NAMED_LINES:
                self.implausible_lines.append(row.line)

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
        """Turn the rows at hand into a frame; their objects are then free."""
        if not self._batch:
            return
        for number, row in enumerate(self._batch, self._rows):
            if row.block_keys is not None:
                self._block_rows.append(number)
                self._block_counts.append(len(row.block_keys))
                self._block_keys.extend(row.block_keys)
        self._rows += len(self._batch)
        self._frames.append(self._request_frame())
        self._batch.clear()
        self._copy_digests.clear()

    def _request_frame(self) -> pl.DataFrame:
        """The batch in the columns of the schema; key and clock are set when the file ends."""
        names = RequestRow.__struct_fields__
        transposed = zip(*map(msgspec.structs.astuple, self._batch), strict=True)
        columns: dict[str, Sequence[object]] = dict(zip(names, transposed, strict=True))
        rows = len(self._batch)
        request_ids = [row.request_id for row in self._batch]
        derived: dict[str, Sequence[object] | pl.Series] = {
            "request_key": columns["offset"],
            "source_id": [0] * rows,
            "is_headline": [False] * rows,
            "request_id_key": self._request_keys(request_ids),
            "session_key": self._keys_of("session", [row.session_id for row in self._batch]),
            "parent_key": self._request_keys([row.parent_id for row in self._batch]),
            "tenant_key": self._keys_of("tenant", [row.tenant for row in self._batch]),
            "turn": [_int32(row.turn) for row in self._batch],
            "clock": [None] * rows,
            "flags": _flag_lists([row.flags for row in self._batch]),
        }
        series = [
            pl.Series(name, derived[name] if name in derived else columns[name], dtype=dtype)
            for name, dtype in REQUESTS.polars_schema().items()
        ]
        series.append(pl.Series(COPY_DIGEST, self._copy_digests, dtype=pl.UInt64))
        series.append(pl.Series(STRIPPED_ID, self._stripped_ids(request_ids), dtype=pl.UInt64))
        return pl.DataFrame(series)

    def finish(self, clock: Clock, late: LateArrivals | None = None) -> FileRows:
        """The columns of the file; times that the clock cannot give are null."""
        self._flush()
        requests = pl.concat([_no_requests(), *self._frames])
        if late is not None:
            requests = _with_late_arrivals(requests, late)
        keys = self._unique_keys(requests["request_key"].to_numpy())
        is_ordered = clock == "order"
        requests = requests.with_columns(
            pl.Series("request_key", keys),
            pl.lit(clock).alias("clock"),
            pl.lit(None, dtype=pl.Int64).alias("arrived_at_ns") if is_ordered else "arrived_at_ns",
        )
        return FileRows(
            requests=requests,
            samples=self._sample_frame(clock),
            transfers=self._transfer_frame(clock),
            rejects=self._reject_frame(),
            observations=len(self._samples),
            block_request_keys=keys[np.frombuffer(self._block_rows, dtype=np.int64)],
            block_counts=np.frombuffer(self._block_counts, dtype=np.int64),
            block_keys=np.frombuffer(self._block_keys, dtype=np.uint64),
        )

    def _unique_keys(self, offsets: Sequence[int] | IntArray) -> IntArray:
        """Keys of rows; several rows of one record get its offset, +1, +2, …"""
        keys = np.asarray(offsets, dtype=np.int64) + self._base
        if len(np.unique(keys)) == len(keys):
            return keys
        order = np.argsort(keys, kind="stable")
        is_first = np.concatenate(([True], np.diff(keys[order]) != 0))
        position = np.arange(len(keys))
        keys[order] += position - np.maximum.accumulate(np.where(is_first, position, 0))
        return keys

    def _request_keys(self, texts: Sequence[str | None]) -> list[int | None]:
        """Hashes of request ids, which are seldom repeated."""
        text_key = self._hasher.text_key
        return [None if text is None else text_key("request", text) for text in texts]

    def _keys_of(
        self, domain: Literal["session", "tenant"], texts: Sequence[str | None]
    ) -> list[int | None]:
        """Hashes of texts that many rows share."""
        remembered = self._hasher.remembered_key
        return [None if text is None else remembered(domain, text) for text in texts]

    def _stripped_ids(self, request_ids: Sequence[str | None]) -> list[int | None]:
        found = [None if text is None else _VLLM_SUFFIX.search(text) for text in request_ids]
        return self._request_keys(
            [None if match is None else match.string[: match.start()] for match in found]
        )

    def _sample_frame(self, clock: Clock) -> pl.DataFrame:
        keys = self._unique_keys([row.offset for row in self._samples]).tolist()
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
        keys = self._unique_keys([row.offset for row in self._transfers]).tolist()
        hashed = self._request_keys([row.request_id for row in self._transfers])
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


def _no_requests() -> pl.DataFrame:
    null = pl.lit(None, dtype=pl.UInt64)
    return REQUESTS.empty().with_columns(null.alias(COPY_DIGEST), null.alias(STRIPPED_ID))


def _with_late_arrivals(requests: pl.DataFrame, late: LateArrivals) -> pl.DataFrame:
    is_known, is_flagged = pl.Series(late.is_known), pl.Series(late.is_flagged)
    return requests.with_columns(
        pl.when(is_known).then(pl.Series(late.arrived_at_ns)).alias("arrived_at_ns"),
        pl.when(is_flagged)
        .then(pl.concat_list("flags", pl.lit(late.flag)))
        .otherwise("flags")
        .alias("flags"),
    )


def _flag_lists(flags: Sequence[tuple[str, ...]]) -> pl.Series:
    """Tuples of slugs as a list column (through one text a row: a series a row is slow)."""
    texts = pl.Series([",".join(row) for row in flags], dtype=pl.String)
    empty = pl.lit([], dtype=pl.List(pl.String))
    split = pl.when(pl.col("") == "").then(empty).otherwise(pl.col("").str.split(","))
    return texts.to_frame("").select(split.alias("flags")).to_series()


def _int32(value: object) -> int | None:
    """A count that fits its column; one that does not is unknown."""
    return value if isinstance(value, int) and 0 <= value <= _MAX_INT32 else None
