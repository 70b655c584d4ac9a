"""Typed rows of one file as columns: ids hashed, keys made, blocks flat. No row object survives."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from kvtrace.ingest.contract import (
    BlockEventRow,
    LateArrivals,
    LineTime,
    Record,
    RequestRow,
    Row,
    SampleRow,
    TransferRow,
)
from kvtrace.ingest.frame import LongRecord
from kvtrace.ingest.hashing import KeyedHasher, finished
from kvtrace.ingest.limits import IMPLAUSIBLE_FLAG, PLAUSIBLE_TOKENS
from kvtrace.ingest.request_ids import call_id, may_have_parts, without_suffix
from kvtrace.ingest.stamps import Resolver, RowStamps
from kvtrace.schema.arrays import IntArray
from kvtrace.schema.manifest import Clock
from kvtrace.schema.tables import BLOCK_EVENTS, REJECTS, REQUESTS, SAMPLES, TRANSFERS, Table

FILE_KEY_STEP: Final = 1 << 44
"""Keys are file number × this + byte offset."""
COPY_DIGEST: Final = "_copy_digest"
"""Helper column: hash of the bytes of the one record behind a row; null if there were several."""
STRIPPED_ID: Final = "_stripped_id_key"
"""Helper column: hash of the request id without the 8-hex suffix that newer vLLM engines add."""
CALL_ID: Final = "_call_id_key"
"""Helper column: hash of the id of the call whose child a request is; null if it is none."""
_FLUSH_ROWS: Final = 65_536
_FLUSH_OBSERVED: Final = 8_192
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
    block_events: pl.DataFrame
    rejects: pl.DataFrame
    observations: int
    block_request_keys: IntArray
    """(requests with block keys,) request_key."""
    block_counts: IntArray
    """(requests with block keys,)"""
    block_keys: UIntArray
    """(sum of block_counts,) keys of one request after the other."""

    @property
    def holds_rows(self) -> bool:
        """Whether anything was understood."""
        tables = (self.requests, self.samples, self.transfers, self.block_events)
        return not all(table.is_empty() for table in tables)

    def forget_blocks(self) -> None:
        """Drop the block keys: the reader found, when it had read all, that they mislead."""
        self.block_request_keys = self.block_counts = np.empty(0, dtype=np.int64)
        self.block_keys = np.empty(0, dtype=np.uint64)


class _Observed:
    """Rows of one of the smaller tables, as they come; batches become frames on the way."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._offsets = array("q")
        self._own_ns: list[int | None] = []
        self._batch: list[tuple[object, ...]] = []
        self._frames: list[pl.DataFrame] = []
        self._stamps = RowStamps()

    @property
    def rows(self) -> int:
        """Rows as the reader gave them (observations, not metrics)."""
        return len(self._offsets)

    def begin(self, offset: int, own_ns: int | None, time: LineTime | None) -> int:
        """Enter a row; its number, which stands in for its key until the file ends."""
        self._offsets.append(offset)
        self._own_ns.append(own_ns)
        self._stamps.add(time)
        return len(self._offsets) - 1

    def add(self, values: tuple[object, ...]) -> None:
        """One table row of the row entered last: its number first, then the other columns."""
        self._batch.append(values)
        if len(self._batch) >= _FLUSH_OBSERVED:
            self._flush()

    def _flush(self) -> None:
        schema = self._table.polars_schema()
        self._frames.append(pl.DataFrame(self._batch, schema=schema, orient="row"))
        self._batch.clear()

    def finish(
        self,
        keys_of: Callable[[IntArray], IntArray],
        *,
        time_column: str,
        clock: Clock,
        line_clock: Clock,
        resolve: Resolver | None,
    ) -> pl.DataFrame:
        """The frame in the columns of the schema, keys and times in place."""
        self._flush()
        frame = pl.concat([self._table.empty(), *self._frames])
        key = self._table.order_by[0]
        numbers = frame[key]
        own = pl.Series(self._own_ns, dtype=pl.Int64)
        times, is_timed = self._stamps.resolved(own, resolve)
        dated = pl.select(
            pl.Series("key", keys_of(np.frombuffer(self._offsets, dtype=np.int64))),
            pl.when(is_timed).then(pl.lit(line_clock)).otherwise(pl.lit(clock)).alias("clock"),
            times.alias("time"),
        ).with_columns(pl.when(pl.col("clock") != "order").then("time"))
        return frame.with_columns(
            dated["key"].gather(numbers).alias(key),
            dated["time"].gather(numbers).alias(time_column),
            dated["clock"].gather(numbers).alias("clock"),
        )


class RowCollector:
    """Takes the rows and rejects of one file (or of one program in it) as they come."""

    def __init__(self, file_id: int, hasher: KeyedHasher) -> None:
        self._file_id = file_id
        self._base = file_id * FILE_KEY_STEP
        self._hasher = hasher
        self._batch: list[RequestRow] = []
        self._frames: list[pl.DataFrame] = []
        self._rows = 0
        self._copy_digests: list[int | None] = []
        self._digested: tuple[Record | None, int] = (None, 0)
        self._stamps = RowStamps()
        self._block_rows = array("q")
        self._block_counts = array("q")
        self._block_keys = array("Q")
        self._samples = _Observed(SAMPLES)
        self._transfers = _Observed(TRANSFERS)
        self._events = _Observed(BLOCK_EVENTS)
        self._event_record = (-1, -1)
        self._event_position = 0
        self._rejects: list[tuple[int, int, int, str, str | None, int]] = []
        self.rejected_by_reason: dict[str, int] = {}
        self.implausible = 0
        """Requests with more tokens than any published context holds; they are flagged."""
        self.implausible_lines: list[int] = []
        """The first lines of those."""

    def add(self, row: Row, current: Record | None, time: LineTime | None = None) -> None:
        """Take a row; `current` is the record that the reader was given last.

        `time` are the stamps of the log line that dates the row; None: the row dates itself.
        """
        if isinstance(row, RequestRow):
            self._add_request(row, current, time)
        elif isinstance(row, SampleRow):
            self._add_sample(row, time)
        elif isinstance(row, TransferRow):
            self._add_transfer(row, time)
        else:
            self._add_event(row, time)

    def _add_request(self, row: RequestRow, current: Record | None, time: LineTime | None) -> None:
        self._batch.append(row)
        self._stamps.add(time)
        digest = None
        if current is not None and current.offset == row.offset and row.request_id is not None:
            digest = self._digest_of(current)
        self._copy_digests.append(digest)
        if len(self._batch) >= _FLUSH_ROWS:
            self._flush()

    def _digest_of(self, record: Record) -> int:
        """Hash of a record's bytes, made once: an answer of an API holds thousands of rows."""
        if record is not self._digested[0]:
            self._digested = (record, self._hasher.copy_digest(record.data))
        return self._digested[1]

    def _add_sample(self, row: SampleRow, time: LineTime | None) -> None:
        number = self._samples.begin(row.offset, row.observed_at_ns, time)
        for metric in row.metrics:
            values = (
                metric.metric,
                metric.value,
                metric.unit,
                metric.hit_unit,
                metric.window,
                metric.window_ns,
                metric.numerator,
                metric.denominator,
            )
            self._samples.add((number, 0, None, None, row.engine, *values))

    def _add_transfer(self, row: TransferRow, time: LineTime | None) -> None:
        number = self._transfers.begin(row.offset, row.started_at_ns, time)
        values = (
            row.direction,
            row.path,
            row.moved_bytes,
            row.moved_tokens,
            row.duration_ns,
            _int32(row.ranks),
        )
        request_id = (
            None if row.request_id is None else self._hasher.text_key("request", row.request_id)
        )
        self._transfers.add((number, 0, request_id, None, None, *values))

    def _add_event(self, row: BlockEventRow, time: LineTime | None) -> None:
        offset, number = self._event_record
        is_new = offset != row.offset
        if is_new:
            number = self._events.begin(row.offset, row.observed_at_ns, time)
        position = 0 if is_new else self._event_position + 1
        self._event_record, self._event_position = (row.offset, number), position
        place = (number, position, 0, None, None, row.instance, row.sequence)
        self._events.add(
            (
                *place,
                row.change,
                row.block_key,
                row.parent_key,
                _int32(row.block_tokens),
                row.medium,
                row.from_medium,
            )
        )

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
        frame = self._request_frame()
        self._flag_implausible(frame)
        self._frames.append(frame.with_columns(_flag_lists(self._batch)))
        self._batch.clear()
        self._copy_digests.clear()

    def _flag_implausible(self, frame: pl.DataFrame) -> None:
        """Flag requests with more tokens than any published context holds."""
        is_odd = pl.max_horizontal("prompt_tokens", "output_tokens") > PLAUSIBLE_TOKENS
        for place in frame.select(pl.arg_where(is_odd)).to_series():
            row = self._batch[place]
            row.flags = (*row.flags, IMPLAUSIBLE_FLAG)
            self.implausible += 1
            if len(self.implausible_lines) < _MAX_NAMED_LINES:
                self.implausible_lines.append(row.line)

    def _request_frame(self) -> pl.DataFrame:
        """The batch in the columns of the schema; key, clock and flags are set later."""
        rows = self._batch
        request_ids = [row.request_id for row in rows]
        derived: dict[str, Sequence[object] | pl.Series | None] = {
            "request_key": [row.offset for row in rows],
            "source_id": None,
            "is_headline": None,
            "request_id_key": self._request_keys(request_ids),
            "session_key": self._keys_of("session", [row.session_id for row in rows]),
            "parent_key": self._request_keys([row.parent_id for row in rows]),
            "tenant_key": self._keys_of("tenant", [row.tenant for row in rows]),
            "turn": [_int32(row.turn) for row in rows],
            "clock": None,
            "flags": None,
            COPY_DIGEST: self._copy_digests,
            STRIPPED_ID: self._parts_of(request_ids, without_suffix),
            CALL_ID: self._parts_of(request_ids, call_id),
        }
        return pl.DataFrame(
            [
                _series(
                    name,
                    derived[name] if name in derived else _column(name, rows),
                    dtype,
                    len(rows),
                )
                for name, dtype in _no_requests().schema.items()
            ]
        )

    def finish(
        self,
        clock: Clock,
        late: LateArrivals | None = None,
        *,
        line_clock: Clock | None = None,
        resolve: Resolver | None = None,
    ) -> FileRows:
        """The columns of the file; times that the clock cannot give are null.

        `resolve` dates the rows that came with the stamps of a line, on `line_clock`.
        """
        self._flush()
        requests = pl.concat([_no_requests(), *self._frames])
        if late is not None:
            requests = _with_late_arrivals(requests, late)
        lines = line_clock or clock
        arrivals, is_timed = self._stamps.resolved(requests["arrived_at_ns"], resolve)
        clocks = pl.when(is_timed).then(pl.lit(lines)).otherwise(pl.lit(clock))
        keys = self._unique_keys(requests["request_key"].to_numpy())
        requests = requests.with_columns(
            pl.Series("request_key", keys), clocks.alias("clock"), arrivals.alias("arrived_at_ns")
        ).with_columns(pl.when(pl.col("clock") != "order").then("arrived_at_ns"))
        finish = functools.partial(
            _Observed.finish,
            keys_of=self._unique_keys,
            clock=clock,
            line_clock=lines,
            resolve=resolve,
        )
        return FileRows(
            requests=_in_order(requests, keys),
            samples=finish(self._samples, time_column="observed_at_ns"),
            transfers=finish(self._transfers, time_column="started_at_ns"),
            block_events=finish(self._events, time_column="observed_at_ns"),
            rejects=self.reject_frame(),
            observations=self._samples.rows,
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

    def _request_keys(self, texts: Sequence[str | None]) -> pl.Series | None:
        """Hashes of request ids, which are seldom repeated; None if there is none."""
        known = [text for text in texts if text is not None]
        if not known:
            return None
        keys = pl.Series(self._hasher.text_keys("request", known))
        if len(known) == len(texts):
            return keys
        places = [place for place, text in enumerate(texts) if text is not None]
        return (
            pl.Series([None], dtype=pl.UInt64).new_from_index(0, len(texts)).scatter(places, keys)
        )

    def _parts_of(
        self, request_ids: Sequence[str | None], part_of: Callable[[str], str | None]
    ) -> pl.Series | None:
        """Hashes of parts of request ids; most ids have none of the forms that have parts."""
        parts: list[str | None] = [None] * len(request_ids)
        for place, text in enumerate(request_ids):
            if text is not None and may_have_parts(text):
                parts[place] = part_of(text)
        return self._request_keys(parts)

    def _keys_of(
        self, domain: Literal["session", "tenant"], texts: Sequence[str | None]
    ) -> Sequence[int | None]:
        """Hashes of texts that many rows share."""
        remembered = self._hasher.remembered_key
        return [None if text is None else remembered(domain, text) for text in texts]

    def reject_frame(self) -> pl.DataFrame:
        """The rejects so far."""
        rows = [(self._file_id, *reject) for reject in self._rejects]
        return pl.DataFrame(rows, schema=REJECTS.polars_schema(), orient="row")


def _no_requests() -> pl.DataFrame:
    null = pl.lit(None, dtype=pl.UInt64)
    return REQUESTS.empty().with_columns(
        *(null.alias(name) for name in (COPY_DIGEST, STRIPPED_ID, CALL_ID))
    )


def _in_order(requests: pl.DataFrame, keys: IntArray) -> pl.DataFrame:
    """The rows by key. Most readers give them so, and then no later sort has to copy them."""
    if not (np.diff(keys) > 0).all():
        requests = requests.sort("request_key")
    return requests.set_sorted("request_key")


def _with_late_arrivals(requests: pl.DataFrame, late: LateArrivals) -> pl.DataFrame:
    is_known, is_flagged = pl.Series(late.is_known), pl.Series(late.is_flagged)
    return requests.with_columns(
        pl.when(is_known).then(pl.Series(late.arrived_at_ns)).alias("arrived_at_ns"),
        pl.when(is_flagged)
        .then(pl.concat_list("flags", pl.lit(late.flag)))
        .otherwise("flags")
        .alias("flags"),
    )


def _column(name: str, rows: Sequence[RequestRow]) -> list[object]:
    return list(map(attrgetter(name), rows))


def _series(
    name: str, values: Sequence[object] | pl.Series | None, dtype: pl.DataType, rows: int
) -> pl.Series:
    """The column; None is a column of nulls."""
    if values is None:
        return pl.Series(name, [None], dtype=dtype).new_from_index(0, rows)
    return pl.Series(name, values, dtype=dtype)


def _flag_lists(rows: Sequence[RequestRow]) -> pl.Series:
    """Tuples of slugs as a list column (through one text a row: a series a row is slow)."""
    texts = pl.Series([",".join(row.flags) for row in rows], dtype=pl.String)
    empty = pl.lit([], dtype=pl.List(pl.String))
    split = pl.when(pl.col("") == "").then(empty).otherwise(pl.col("").str.split(","))
    return texts.to_frame("").select(split.alias("flags")).to_series()


def _int32(value: object) -> int | None:
    """A count that fits its column; one that does not is unknown."""
    return value if isinstance(value, int) and 0 <= value <= _MAX_INT32 else None
