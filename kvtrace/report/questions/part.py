"""One question of a section: its answer in words, what is drawn, and what is folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import AuditRecord, Table
from kvtrace.report.questions.facts import Row
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, Origin, TableView, table_view

SHORT_ROWS: Final = 12
"""A table of more rows is folded."""


@dataclass(frozen=True, slots=True)
class Part:
    """One question as shown."""

    id: str
    title: str
    sentences: tuple[str, ...] = ()
    """The answer, from numbers of the record."""
    points: tuple[str, ...] = ()
    """One line for each of several causes."""
    points_title: str = ""
    points_source: TableView | None = None
    """The folded table that the points are made from."""
    charts: tuple[ChartView, ...] = ()
    small: tuple[ChartView, ...] = ()
    """Charts that stand side by side."""
    short: tuple[TableView, ...] = ()
    """Tables that are shown, as far as they have few rows."""
    tables_first: bool = False
    """Whether the short tables stand before the charts."""
    folded: tuple[TableView, ...] = ()
    missing: str | None = None
    """What the data lacks, and which flag, log or command would give it."""

    @property
    def open_tables(self) -> tuple[TableView, ...]:
        """The short tables that are short indeed."""
        return tuple(one for one in self.short if len(one.rows) <= SHORT_ROWS)

    @property
    def folded_tables(self) -> tuple[TableView, ...]:
        """All the others."""
        long = tuple(one for one in self.short if len(one.rows) > SHORT_ROWS)
        return (*long, *self.folded)

    @property
    def anchors(self) -> frozenset[str]:
        """Of the tables that stand in this part."""
        charts = [view.table for view in (*self.charts, *self.small) if view.table is not None]
        return frozenset(one.anchor for one in (*charts, *self.short, *self.folded))


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence that stands before the figures it limits."""

    text: str
    severity: str
    source: str
    """The query that says so."""


def tables(record: AuditRecord, ids: Sequence[str], origin: Origin) -> tuple[TableView, ...]:
    """The tables of these queries that have rows."""
    return tuple(
        table_view(record.tables[id], origin=origin)
        for id in ids
        if id in record.tables and record.tables[id].rows
    )


def choose(
    table: Table, id: str, columns: Sequence[str], rows: Sequence[Row], *, title: str = ""
) -> Table:
    """Some columns and rows of a query's table, which keeps the query's name."""
    places = [table.columns.index(name) for name in columns if name in table.columns]
    return Table(
        id=id,
        title=title or table.title,
        query=table.query,
        columns=[table.columns[i] for i in places],
        units=[table.units[i] for i in places],
        meanings=[table.meanings[i] for i in places],
        rows=[[row.cells[i] for i in places] for row in rows],
        is_modelled=table.is_modelled,
        basis=table.basis,
    )


def absent_part(id: str, texts: Texts, *, missing: str | None = None) -> Part:
    """A question that this data cannot answer, in one line."""
    return Part(id, texts(f"q.{id}.title"), missing=missing or texts(f"q.{id}.missing"))


def chart_of(
    id: str,
    texts: Texts,
    figure: str,
    table: TableView | None,
    *,
    summary: str,
    origin: Origin = "computed",
    title: str | None = None,
    is_wide: bool = False,
) -> ChartView:
    """A chart with its sentence and the table that it was drawn from."""
    return ChartView(
        id=id,
        title=title or texts(f"chart.{id}.title"),
        origin=origin,
        summary=summary,
        figure=figure,
        table=table,
        is_wide=is_wide,
    )
