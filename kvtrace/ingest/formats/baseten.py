"""Baseten traces: Parquet or Arrow, one row a completion request.

Shape read from the loader of AIPerf 0.13 and later (`baseten_trace`): `timestamp_start_unix_ms`,
`prompt`, `input_tokens`, `output_tokens`, and optionally `total_hashes` with `block_size`,
`provided_session_id`, `poor_man_session_id`, `duration_e2e_ms`, `duration_ttft_ms`,
`request_canceled`, `cached_tokens_reference`, `model_name`, `org_id`. Whether the hashes are of
blocks or of prefixes is not said: chained here, both mean the same. Prompts are read only where
there are no hashes, and become block keys at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from kvtrace.ingest.blocks.ids import chain_content_ids
from kvtrace.ingest.blocks.size import judge_blocks, take_stated
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.prompts import Prompt
from kvtrace.ingest.prompts.rows import Prompted, with_blocks
from kvtrace.ingest.tabular import (
    MAX_TABLE_BYTES,
    DamagedTableError,
    table_batches,
    table_schema,
)
from kvtrace.ingest.values.jsonfields import flag_lengths
from kvtrace.ingest.values.limits import MAX_COUNT
from kvtrace.units import NS_PER_MS

_REQUIRED: Final = ("timestamp_start_unix_ms", "input_tokens", "output_tokens")
_COUNTS: Final = (
    *_REQUIRED,
    "block_size",
    "duration_e2e_ms",
    "duration_ttft_ms",
    "request_canceled",
    "cached_tokens_reference",
)
_SESSIONS: Final = ("provided_session_id", "poor_man_session_id")
_NAMES: Final = (*_SESSIONS, "model_name", "org_id")
_EPOCH_FROM_MS: Final = 10**11
_MAX_MS: Final = ((1 << 63) - 1) // NS_PER_MS
_UINT64: Final = (1 << 64) - 1

Cells = Mapping[str, object]


class _BasetenFile:
    """The rows of one table."""

    def __init__(self, record: Record, context: ReadContext) -> None:
        self._record = record
        self._context = context
        self._schema = table_schema(record.data) or pl.Schema()
        self._hashes = _is_list_of_ids(self._schema.get("total_hashes"))
        self._session: str | None = None
        self._lengths, self._counts = array("q"), array("q")
        self._size: int | None = None
        self._epochs = 0
        self.is_cut = False
        self.read = self.left_out = self.other_sizes = 0

    def rows(self) -> Iterator[Prompted]:
        """Every usable row with its prompt; `is_cut` says afterwards whether that was all."""
        try:
            yield from self._all_rows()
        except DamagedTableError:
            self.is_cut = True

    def _all_rows(self) -> Iterator[Prompted]:
        if not set(_REQUIRED) <= set(self._schema):
            raise DamagedTableError
        self._session = self._best_session()
        for batch in table_batches(self._record.data, list(self._columns())):
            for cells in batch.iter_rows(named=True):
                row = self._row(cells)
                if row is None:
                    self.left_out += 1
                    continue
                self.read += 1
                prompt = cells.get("prompt")
                has_prompt = isinstance(prompt, str) and prompt
                yield row, Prompt(str(prompt).encode("utf-8", "replace")) if has_prompt else None

    def _columns(self) -> Iterator[pl.Expr]:
        for name in _COUNTS:
            if name in self._schema:
                yield pl.col(name).cast(pl.Int64, strict=False)
        for name in _NAMES:
            if name in self._schema and name not in _SESSIONS:
                yield pl.col(name).cast(pl.String, strict=False)
        if self._session is not None:
            yield pl.col(self._session).cast(pl.String, strict=False).alias("session")
        if self._hashes:
            yield pl.col("total_hashes")
        elif self._schema.get("prompt") == pl.String and self._context.prompt_hasher is not None:
            yield pl.col("prompt")

    def _best_session(self) -> str | None:
        """The session column in which most rows share their value with another one."""
        present = [name for name in _SESSIONS if name in self._schema]
        shared = dict.fromkeys(present, 0)
        for name in present:
            column = pl.col(name).cast(pl.String, strict=False)
            seen: dict[str, int] = {}
            for batch in table_batches(self._record.data, [column]):
                for value in batch[name].drop_nulls():
                    seen[value] = seen.get(value, 0) + 1
            shared[name] = sum(count for count in seen.values() if count > 1)
        best = max(present, key=shared.__getitem__, default=None)
        return best if best is not None and shared[best] else None

    def _row(self, cells: Cells) -> RequestRow | None:
        """The request of one row; None if its time or its lengths are none."""
        at_ms = _count(cells, "timestamp_start_unix_ms", _MAX_MS)
        prompt_tokens = _count(cells, "input_tokens", MAX_COUNT)
        if at_ms is None or prompt_tokens is None:
            return None
        is_cancelled = cells.get("request_canceled") == 1
        ttft_ms = _count(cells, "duration_ttft_ms", _MAX_MS)
        e2e_ms = _count(cells, "duration_e2e_ms", _MAX_MS)
        self._epochs += at_ms >= _EPOCH_FROM_MS
        row = RequestRow(
            offset=self._record.offset,
            line=self._record.line,
            session_id=_name(cells, "session"),
            tenant=_name(cells, "org_id"),
            llm=_name(cells, "model_name"),
            arrived_at_ns=at_ms * NS_PER_MS,
            prompt_tokens=prompt_tokens,
            cached_tokens=_count(cells, "cached_tokens_reference", MAX_COUNT),
            output_tokens=_count(cells, "output_tokens", MAX_COUNT),
            ttft_ns=None if ttft_ms is None else ttft_ms * NS_PER_MS,
            ttft_from=None if ttft_ms is None else "arrival",
            e2e_ns=None if e2e_ms is None else e2e_ms * NS_PER_MS,
            status="cancelled" if is_cancelled else "ok",
        )
        row.block_keys = self._keys(cells, prompt_tokens)
        flag_lengths(row)
        return row

    def _keys(self, cells: Cells, prompt_tokens: int) -> list[int] | None:
        """Chained keys of the hashes, if the blocks of this row are as large as the others'."""
        ids = cells.get("total_hashes")
        if not isinstance(ids, list) or not all(isinstance(item, int) for item in ids):
            return None
        size = _count(cells, "block_size", 1 << 20)
        if size is not None and self._size is None and self._context.block_size_tokens is None:
            self._size = size or None
        if size is not None and self._size not in (None, size):
            self.other_sizes += 1
            return None
        self._lengths.append(prompt_tokens)
        self._counts.append(len(ids))
        return chain_content_ids(item & _UINT64 for item in ids)

    def describe(self) -> None:
        """Write down clock, blocks and what was left out."""
        context = self._context
        is_epoch = 2 * self._epochs >= self.read
        context.clock, context.clock_resolution_ns = "utc" if is_epoch else "relative", NS_PER_MS
        context.clock_reason = (
            "timestamp_start_unix_ms counts milliseconds from the epoch"
            if is_epoch
            else "timestamp_start_unix_ms holds no dates: milliseconds from some start"
        )
        if self._hashes:
            self._describe_blocks()
        self._note_left_out()

    def _describe_blocks(self) -> None:
        context = self._context
        context.block_ids, context.block_scope = "content_chained", "file"
        lengths = np.frombuffer(self._lengths, dtype=np.int64)
        counts = np.frombuffer(self._counts, dtype=np.int64)
        if self._size is not None:
            take_stated(context, self._size, "block_size", lengths, counts)
        elif len(counts):
            judge_blocks(context, lengths, counts, column="input_tokens")

    def _note_left_out(self) -> None:
        context = self._context
        if self.left_out:
            context.note(
                "rows_left_out",
                f"{self.left_out:,} rows have no usable time or prompt length and are left out",
                severity="warning",
            )
        if self.other_sizes:
            context.note(
                "block_size_varies",
                f"{self.other_sizes:,} rows have blocks of another size than {self._size} tokens;"
                " they are kept without blocks",
                severity="warning",
            )


def _is_list_of_ids(dtype: pl.DataType | None) -> bool:
    return isinstance(dtype, pl.List) and bool(dtype.inner.is_integer())


def _count(cells: Cells, name: str, limit: int) -> int | None:
    value = cells.get(name)
    return value if isinstance(value, int) and 0 <= value <= limit else None


def _name(cells: Cells, name: str) -> str | None:
    value = cells.get(name)
    return value if isinstance(value, str) and value else None


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    for record in records:
        file = _BasetenFile(record, context)
        yield from with_blocks(file.rows(), context.prompt_hasher)
        if not file.read:
            reason = "damaged_table" if file.is_cut else "no_usable_row"
            context.tally.reject(record, reason, None)
            continue
        context.tally.use()
        if context.prompt_hasher is not None:
            context.prompt_hasher.describe(context)
        file.describe()
        if file.is_cut:
            context.note(
                "table_damaged",
                f"the table is damaged behind its row {file.read + file.left_out:,}: what follows"
                " is not read",
                severity="warning",
            )


def _sniff(head: Head) -> Guess | None:
    if head.text or not set(_REQUIRED) <= set(head.csv_header):
        return None
    return Guess(0.99, f"a table with {', '.join(_REQUIRED)}")


FORMATS: tuple[Format, ...] = (
    Format(
        name="baseten",
        title="Baseten trace (Parquet or Arrow)",
        framing="document",
        best_grade="A",
        supplies=(
            "session_id",
            "tenant",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "ttft_ns",
            "e2e_ns",
            "status",
            "block_keys",
        ),
        missing={
            "reuse": "total_hashes, or the prompt and `--tokenizer FILE`",
            "cached_tokens": "cached_tokens_reference in the export",
            "ttft": "duration_ttft_ms in the export",
            "queue": "engine logs of the same service",
        },
        versions="AIPerf 0.13 baseten_trace, and its later columns (duration_ttft_ms,"
        " request_canceled, cached_tokens_reference)",
        sniff=_sniff,
        read=_read,
        enable_hint="export of a Baseten deployment's requests with total_hashes",
        max_record_bytes=MAX_TABLE_BYTES,
    ),
)
