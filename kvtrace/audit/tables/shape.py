"""What a table that no query gives looks like, before its rows."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.audit.record import Cell, Table

ColumnSpec = tuple[str, str, str]
"""Name, unit, meaning."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a modelled table is, before its rows."""

    id: str
    title: str
    columns: tuple[ColumnSpec, ...]

    def table(self, rows: list[list[Cell]]) -> Table:
        """The table with these rows."""
        names, units, meanings = zip(*self.columns, strict=True)
        return Table(
            id=self.id,
            title=self.title,
            query=None,
            columns=list(names),
            units=list(units),
            meanings=list(meanings),
            rows=rows,
            is_modelled=True,
            basis="modelled",
        )
