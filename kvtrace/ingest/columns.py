"""Typed rows of one file as columns: ids hashed, keys made, blocks flat. No row object survives."""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
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
from kvtrace.ingest.files.frame import LongRecord
from kvtrace.ingest.hashing import KeyedHasher, UIntArray, finished
from kvtrace.ingest.request_columns import RequestColumns, UnsettledRows, int32
from kvtrace.ingest.values.stamps import Resolver, RowStamps
from kvtrace.schema.arrays import IntArray
from kvtrace.schema.manifest import Clock
from kvtrace.schema.table import Table
from kvtrace.schema.tables import BLOCK_EVENTS, REJECTS, SAMPLES, TRANSFERS

FILE_KEY_STEP: Final = 1 << 44
"""Keys are file number × this + byte offset."""
_QUOTED: Final = re.compile(r"'.*'", re.DOTALL)
_FLUSH_OBSERVED: Final = 8_192


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
    unsettled: UnsettledRows
    """Requests whose prompt count other records must settle, by request_key."""
    flag_lines: dict[str, int]
    """The first line of each flag of requests."""

    @property
    def holds_rows(self) -> bool:
        """Whether anything was understood."""
        tables = (self.requests, self.samples, self.transfers, self.block_events)
        return not all(table.is_empty() for table in tables)

    def forget_blocks(self) -> None:
        """Drop the block keys: the reader found, when it had read all, that they mislead."""
        self.block_request_keys = self.block_counts = np.empty(0, dtype=np.int64)
        self.block_keys = np.empty(0, dtype=np.uint64)

    def cut_blocks(self, most: dict[int, int]) -> None:
        """Leave these requests (by request_key) at most that many block keys."""
        limits = [most.get(key, -1) for key in self.block_request_keys.tolist()]
        wanted = np.array(limits, dtype=np.int64)
        counts = np.where(wanted < 0, self.block_counts, np.minimum(wanted, self.block_counts))
        starts = np.cumsum(self.block_counts) - self.block_counts
        places = np.arange(len(self.block_keys)) - np.repeat(starts, self.block_counts)
        self.block_keys = self.block_keys[places < np.repeat(counts, self.block_counts)]
        self.block_counts = counts


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
        self._requests = RequestColumns(hasher)
        self._samples = _Observed(SAMPLES)
        self._transfers = _Observed(TRANSFERS)
        self._events = _Observed(BLOCK_EVENTS)
        self._event_record = (-1, -1)
        self._event_position = 0
        self._rejects: list[tuple[int, int, int, str, str | None, int]] = []
        self.rejected_by_reason: dict[str, int] = {}

    @property
    def implausible(self) -> int:
        """Requests with more tokens than any published context holds; they are flagged."""
        return self._requests.implausible

    @property
    def implausible_lines(self) -> list[int]:
        """The first lines of those."""
        return self._requests.implausible_lines

    def add(self, row: Row, current: Record | None, time: LineTime | None = None) -> None:
        """Take a row; `current` is the record that the reader was given last.

        `time` are the stamps of the log line that dates the row; None: the row dates itself.
        """
        if isinstance(row, RequestRow):
            self._requests.add(row, current, time)
        elif isinstance(row, SampleRow):
            self._add_sample(row, time)
        elif isinstance(row, TransferRow):
            self._add_transfer(row, time)
        else:
            self._add_event(row, time)

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
            int32(row.ranks),
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
                int32(row.block_tokens),
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
        if detail is not None and "'" in detail:
            detail = _QUOTED.sub("'…'", detail)  # msgspec quotes values that it cannot use
        self._rejects.append((line, offset, length, reason, detail, digest))
        self.rejected_by_reason[reason] = self.rejected_by_reason.get(reason, 0) + 1

    @property
    def rejected(self) -> int:
        """Records rejected so far."""
        return len(self._rejects)

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
        requests = self._requests.frame()
        if late is not None:
            requests = _with_late_arrivals(requests, late)
        lines = line_clock or clock
        arrivals, is_timed = self._requests.stamps.resolved(requests["arrived_at_ns"], resolve)
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
        block_rows, block_counts, block_keys = self._requests.blocks()
        unsettled = self._requests.unsettled()
        return FileRows(
            requests=_in_order(requests, keys),
            samples=finish(self._samples, time_column="observed_at_ns"),
            transfers=finish(self._transfers, time_column="started_at_ns"),
            block_events=finish(self._events, time_column="observed_at_ns"),
            rejects=self.reject_frame(),
            observations=self._samples.rows,
            block_request_keys=keys[block_rows],
            block_counts=block_counts,
            block_keys=block_keys,
            flag_lines=self._requests.flag_lines,
            unsettled=replace(unsettled, row=keys[unsettled.row]),
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

    def reject_frame(self) -> pl.DataFrame:
        """The rejects so far."""
        rows = [(self._file_id, *reject) for reject in self._rejects]
        return pl.DataFrame(rows, schema=REJECTS.polars_schema(), orient="row")


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
