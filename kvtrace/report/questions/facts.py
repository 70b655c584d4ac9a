"""Reading a table of the record row by row: a cell by its column, shown in its unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell, Table
from kvtrace.report.figures.common import show
from kvtrace.report.texts import Texts


@dataclass(frozen=True, slots=True)
class Row:
    """One row; a column that the table lacks reads as unknown."""

    table: Table
    cells: Sequence[Cell]

    def __getitem__(self, column: str) -> Cell:
        """The cell of a column."""
        if column not in self.table.columns:
            return None
        return self.cells[self.table.columns.index(column)]

    def number(self, column: str) -> float | None:
        """The cell, where it is a number."""
        cell = self[column]
        return cell if isinstance(cell, int | float) else None

    def text(self, column: str) -> str:
        """The cell as it is stored; empty when unknown."""
        cell = self[column]
        return "" if cell is None else str(cell)

    def show(self, column: str, texts: Texts) -> str:
        """The cell in the unit of its column; unknown in words."""
        return show(self[column], self.unit(column), texts, name=column)

    def unit(self, column: str) -> str:
        """The unit of a column; that of a column in backticks stands in the row."""
        if column not in self.table.columns:
            return ""
        unit = self.table.units[self.table.columns.index(column)]
        named = unit.strip("`")
        return self.text(named) if named != unit else unit


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of a query's table; a table that the record lacks has none."""

    table: Table | None
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def first(self) -> Row | None:
        """The first row."""
        return next(iter(self.rows), None)

    def where(self, **wanted: Cell) -> Facts:
        """The rows whose columns hold exactly these cells."""
        kept = (row for row in self.rows if all(row[name] == cell for name, cell in wanted.items()))
        return Facts(self.table, tuple(kept))

    def known(self, *columns: str) -> Facts:
        """The rows in which these columns hold a number."""
        kept = (row for row in self.rows if all(row.number(name) is not None for name in columns))
        return Facts(self.table, tuple(kept))

    def values(self, column: str) -> list[Cell]:
        """The distinct cells of a column, in the order of the rows."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def largest(self, column: str) -> Row | None:
        """The row of the largest number in a column, the first of equals."""
        return max(self.known(column).rows, key=lambda row: row.number(column) or 0.0, default=None)

    def smallest(self, column: str) -> Row | None:
        """The row of the smallest number in a column, the first of equals."""
        return min(self.known(column).rows, key=lambda row: row.number(column) or 0.0, default=None)


def facts(record: AuditRecord, id: str) -> Facts:
    """The rows of one table of the record."""
    table = record.tables.get(id)
    if table is None:
        return Facts(None, ())
    return Facts(table, tuple(Row(table, row) for row in table.rows))


_SECONDS_IN: Final = {"ms": 1e3, "ns": 1e9, "us": 1e6, "s": 1.0}


def seconds(row: Row, column: str) -> float | None:
    """A time in seconds, for an axis of seconds."""
    number = row.number(column)
    return None if number is None else number / _SECONDS_IN.get(row.unit(column), 1.0)
