"""What a table and a column of a dataset say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

Dtype = Literal["int64", "int32", "uint64", "float64", "bool", "text", "texts"]
_POLARS: Final[dict[str, pl.DataType]] = {
    "int64": pl.Int64(),
    "int32": pl.Int32(),
    "uint64": pl.UInt64(),
    "float64": pl.Float64(),
    "bool": pl.Boolean(),
    "text": pl.String(),
    "texts": pl.List(pl.String()),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, unit, meaning, and what null says."""

    name: str
    dtype: Dtype
    unit: str
    meaning: str
    null: str = "never null"
    keyed: bool = False
    """A keyed hash: differs with the salt, so the digest takes its first-appearance rank."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its grain, its columns, and the columns that order it totally."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    order_by: tuple[str, ...]
    is_derived: bool = False
    """Made after ingest, with parameters (`store.derived`): no rows until somebody asks for it."""

    def polars_schema(self) -> dict[str, pl.DataType]:
        """Column name to polars type, in column order."""
        return {column.name: _POLARS[column.dtype] for column in self.columns}

    def empty(self) -> pl.DataFrame:
        """A frame with these columns and no rows."""
        return pl.DataFrame(schema=self.polars_schema())


UNKNOWN: Final = "the source does not say"
