"""Parquet and Arrow files: the one door through which their columns and rows come in.

Both keep their schema at the end, so a file is judged and read when all of it is there. Rows come
in batches, with only the columns asked for: a column of prompts that nobody wants is not unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Final

import polars as pl

from kvtrace.units import GIB

MAX_TABLE_BYTES: Final = GIB
"""A table is held in memory while it is read; larger ones are refused."""
_PARQUET: Final = b"PAR1"
_ARROW: Final = b"ARROW1"
_BATCH_ROWS: Final = 4096
_UNREADABLE: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)


class DamagedTableError(Exception):
    """The table cannot be read, or not to its end."""


def table_kind(data: bytes) -> str | None:
    """`Parquet` or `Arrow` by the first bytes; None for anything else."""
    if data.startswith(_PARQUET):
        return "Parquet"
    return "Arrow" if data.startswith(_ARROW) else None


def table_schema(data: bytes) -> pl.Schema | None:
    """Columns and types of a whole table; None if it is cut or damaged."""
    try:
        return _scan(data).collect_schema()
    except _UNREADABLE:
        return None


def table_batches(data: bytes, columns: Sequence[str | pl.Expr]) -> Iterator[pl.DataFrame]:
    """The rows in order, a few thousand at a time.

    Raises:
        DamagedTableError: the table is cut or damaged; batches before that were given.
    """
    try:
        yield from (
            _scan(data).select(columns).collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)
        )
    except _UNREADABLE as cause:
        raise DamagedTableError from cause


def _scan(data: bytes) -> pl.LazyFrame:
    stream = BytesIO(data)
    return pl.scan_parquet(stream) if data.startswith(_PARQUET) else pl.scan_ipc(stream)
