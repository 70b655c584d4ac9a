"""Request rows as columns: ids hashed, blocks flat. No row object lives long.

Rows are taken apart some hundred at a time, while they are still in the processor's cache, and
their columns become a frame every 65 536 rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np
import polars as pl

from kvtrace.ingest.contract import LineTime, Producer, Record, RequestRow, Unsettled
from kvtrace.ingest.hashing import KeyedHasher, UIntArray
from kvtrace.ingest.joining.request_ids import call_id, may_have_parts, without_suffix
from kvtrace.ingest.oddities import settle_row
from kvtrace.ingest.values.stamps import RowStamps
from kvtrace.schema.arrays import BoolArray, IntArray
from kvtrace.schema.tables import REQUESTS

COPY_DIGEST: Final = "_copy_digest"
"""Helper column: hash of the bytes of the one record behind a row; null if there were several."""
STRIPPED_ID: Final = "_stripped_id_key"
"""Helper column: hash of the request id without the 8-hex suffix that newer vLLM engines add."""
CALL_ID: Final = "_call_id_key"
"""Helper column: hash of the id of the call whose child a request is; null if it is none."""
_SPILL_ROWS: Final = 512
_FLUSH_ROWS: Final = 65_536
_MAX_INT32: Final = 2**31 - 1
_MAX_NAMED_LINES: Final = 3


class RequestColumns:
    """Takes request rows as they come; gives their frame when the file has been read."""

    def __init__(self, hasher: KeyedHasher) -> None:
        self._hasher = hasher
        self.stamps = RowStamps()
        self.implausible = 0
        """Requests with more tokens than any published context holds; they are flagged."""
        self.implausible_lines: list[int] = []
        """The first lines of those."""
        self.flag_lines: dict[str, int] = {}
        """The first line of each flag."""
        self._rows: list[RequestRow] = []
        self._frames: list[pl.DataFrame] = []
        self._taken = 0
        """Rows that are in frames or columns."""
        self._in_frames = 0
        self._block_rows = array("q")
        self._block_counts = array("q")
        self._block_keys = array("Q")
        self._unsettled: list[tuple[int, Unsettled]] = []
        """Rows whose prompt count other records must settle."""
        self._clear()

    def _clear(self) -> None:
        self._pieces: dict[str, list[tuple[object, ...] | None]] = {
            name: [] for name in RequestRow.__struct_fields__
        }
        """By field; None for a piece without a value."""
        self._sizes: list[int] = []
        """Rows of each piece."""
        self._copy_digests: dict[int, int] = {}
        """By row of the next frame; rows of several records have none."""

    def add(self, row: RequestRow, current: Record | None, time: LineTime | None) -> None:
        """Take a row; `current` is the record at hand, `time` the stamps that date the row."""
        rows = self._rows
        if current is not None and current.offset == row.offset and row.request_id is not None:
            place = self._taken - self._in_frames + len(rows)
            self._copy_digests[place] = self._hasher.copy_digest(current.data)
        rows.append(row)
        self.stamps.add(time)
        if len(rows) >= _SPILL_ROWS:
            self._spill()

    def _spill(self) -> None:
        rows, size = self._rows, len(self._rows)
        self._settle_rows()
        columns = zip(*map(msgspec.structs.astuple, rows), strict=True)
        for pieces, column in zip(self._pieces.values(), columns, strict=False):
            pieces.append(None if column.count(None) == size else column)
        if self._pieces["block_keys"][-1] is not None:
            self._take_blocks()
        if self._pieces["unsettled"][-1] is not None:
            told = enumerate((row.unsettled for row in rows), self._taken)
            self._unsettled += [(number, one) for number, one in told if one is not None]
        self._sizes.append(size)
        self._taken += size
        rows.clear()
        if self._taken - self._in_frames >= _FLUSH_ROWS:
            self._flush()

    def _settle_rows(self) -> None:
        for row in self._rows:
            if settle_row(row):
                self.implausible += 1
                if len(self.implausible_lines) < _MAX_NAMED_LINES:
                    self.implausible_lines.append(row.line)
            for flag in row.flags:
                line = self.flag_lines.get(flag)
                if line is None or row.line < line:
                    self.flag_lines[flag] = row.line

    def _take_blocks(self) -> None:
        for number, row in enumerate(self._rows, self._taken):
            if row.block_keys is not None:
                self._block_rows.append(number)
                self._block_counts.append(len(row.block_keys))
                self._block_keys.extend(row.block_keys)

    def _flush(self) -> None:
        """Turn the columns at hand into a frame; the objects in them are then free."""
        self._frames.append(self._frame())
        self._in_frames = self._taken
        self._clear()

    def _frame(self) -> pl.DataFrame:
        """The columns of the schema and the helpers; request_key is the offset, clock is null."""
        rows = self._taken - self._in_frames
        request_ids = self._texts("request_id")
        with_parts = {place: text for place, text in request_ids.items() if may_have_parts(text)}
        digests = self._copy_digests
        made = {
            "request_key": self._column("offset"),
            "request_id_key": self._request_keys(request_ids, rows),
            "session_key": self._keys_of("session", self._texts("session_id"), rows),
            "parent_key": self._request_keys(self._texts("parent_id"), rows),
            "tenant_key": self._keys_of("tenant", self._texts("tenant"), rows),
            "user_key": self._keys_of("user", self._texts("user"), rows),
            "turn": [int32(turn) for turn in self._column("turn") or ()] or None,
            "flags": _flag_lists(self._column("flags") or ()),
            COPY_DIGEST: _at(list(digests), pl.Series(digests.values(), dtype=pl.UInt64), rows),
            STRIPPED_ID: self._parts_of(with_parts, without_suffix, rows),
            CALL_ID: self._parts_of(with_parts, call_id, rows),
        }
        return pl.DataFrame(
            [
                _series(name, made[name] if name in made else self._column(name), dtype, rows)
                for name, dtype in no_requests().schema.items()
            ]
        )

    def _column(self, name: str) -> list[object] | None:
        """The values of a field; None if no row has one, or rows have no such field."""
        pieces = self._pieces.get(name, ())
        if not any(piece is not None for piece in pieces):
            return None
        values: list[object] = []
        for piece, size in zip(pieces, self._sizes, strict=True):
            values += (None,) * size if piece is None else piece
        return values

    def _texts(self, name: str) -> dict[int, str]:
        """The texts of a field by row, without those that are null."""
        column = self._column(name) or ()
        return {place: text for place, text in enumerate(column) if isinstance(text, str)}

    def _request_keys(self, texts: dict[int, str], rows: int) -> pl.Series | None:
        """Hashes of request ids, which are seldom repeated, by row; None if there is none."""
        keys = self._hasher.text_keys("request", list(texts.values()))
        return _at(list(texts), pl.Series(keys), rows)

    def _parts_of(
        self, request_ids: dict[int, str], part_of: Callable[[str], str | None], rows: int
    ) -> pl.Series | None:
        """Hashes of parts of request ids; None if no id has one."""
        parts = [part_of(text) for text in request_ids.values()]
        found = {
            place: part for place, part in zip(request_ids, parts, strict=True) if part is not None
        }
        return self._request_keys(found, rows)

    def _keys_of(
        self, domain: Literal["session", "tenant", "user"], texts: dict[int, str], rows: int
    ) -> pl.Series | None:
        """Hashes of texts that many rows share, by row; None if there is none."""
        remembered = self._hasher.remembered_key
        keys = [remembered(domain, text) for text in texts.values()]
        return _at(list(texts), pl.Series(keys, dtype=pl.UInt64), rows)

    def frame(self) -> pl.DataFrame:
        """All rows in the order in which they came; request_key is the offset, clock is null."""
        if self._rows:
            self._spill()
        if self._taken > self._in_frames:
            self._flush()
        self._frames = [pl.concat([no_requests(), *self._frames])]
        return self._frames[0]

    def unsettled(self) -> UnsettledRows:
        """The rows whose prompt count other records must settle."""
        found = self._unsettled
        places = {one.producer: 0 for _, one in found}
        places = {producer: place for place, producer in enumerate(places)}
        return UnsettledRows(
            row=np.array([number for number, _ in found], dtype=np.int64),
            left_out_tokens=np.array([one.left_out_tokens for _, one in found], dtype=np.int64),
            is_by_spec=np.array([one.is_by_spec for _, one in found], dtype=np.bool_),
            producer=np.array([places[one.producer] for _, one in found], dtype=np.int64),
            producers=tuple(places),
        )

    def blocks(self) -> tuple[IntArray, IntArray, UIntArray]:
        """Rows with block keys, how many each has, and the keys of one row after the other."""
        return (
            np.frombuffer(self._block_rows, dtype=np.int64),
            np.frombuffer(self._block_counts, dtype=np.int64),
            np.frombuffer(self._block_keys, dtype=np.uint64),
        )


@dataclass(frozen=True, slots=True)
class UnsettledRows:
    """Requests whose prompt count other records must settle."""

    row: IntArray
    """(requests,) number of the row; once the file has been read, its request_key."""
    left_out_tokens: IntArray
    is_by_spec: BoolArray
    producer: IntArray
    """Place in `producers`."""
    producers: tuple[Producer, ...]


def no_requests() -> pl.DataFrame:
    """An empty frame of requests with the helper columns."""
    null = pl.lit(None, dtype=pl.UInt64)
    return REQUESTS.empty().with_columns(
        *(null.alias(name) for name in (COPY_DIGEST, STRIPPED_ID, CALL_ID))
    )


def int32(value: object) -> int | None:
    """A count that fits its column; one that does not is unknown."""
    return value if isinstance(value, int) and 0 <= value <= _MAX_INT32 else None


def _at(places: list[int], values: pl.Series, rows: int) -> pl.Series | None:
    """The values at their places, null elsewhere; None if there is no value."""
    if not places:
        return None
    if len(places) == rows:
        return values
    return _nulls("", pl.UInt64(), rows).scatter(places, values)


def _nulls(name: str, dtype: pl.DataType, rows: int) -> pl.Series:
    return pl.Series(name, [None], dtype=dtype).new_from_index(0, rows)


def _series(
    name: str, values: Sequence[object] | pl.Series | None, dtype: pl.DataType, rows: int
) -> pl.Series:
    """The column; without values a column of nulls."""
    if values is None:
        return _nulls(name, dtype, rows)
    return pl.Series(name, values, dtype=dtype)


def _flag_lists(flags: Sequence[object]) -> pl.Series:
    """Tuples of slugs as a list column (through one text a row: a series a row is slow)."""
    texts = pl.Series(
        [",".join(row) if row and isinstance(row, tuple) else "" for row in flags], dtype=pl.String
    )
    empty = pl.lit([], dtype=pl.List(pl.String))
    split = pl.when(pl.col("") == "").then(empty).otherwise(pl.col("").str.split(","))
    return texts.to_frame("").select(split.alias("flags")).to_series()
