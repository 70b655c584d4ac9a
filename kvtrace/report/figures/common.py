"""Reading a table by column, and words for numbers: what all figures share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell, Table
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.format import format_instant, format_value, is_instant, safe_text
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, Origin
from kvtrace.units import NS_PER_S

QUEUE, MOVE, PREFILL = "var(--c-queue)", "var(--c-move)", "var(--c-prefill)"
PALETTE: Final = ("var(--c-1)", "var(--c-2)", "var(--c-3)", "var(--c-4)", "var(--c-5)")
_TO_SECONDS: Final = {"ns": NS_PER_S, "us": 1_000_000, "ms": 1_000, "s": 1}


@dataclass(frozen=True, slots=True)
class Columns:
    """A table read by column; several names may stand for one idea, the first present wins."""

    table: Table

    def find(self, *names: str) -> int | None:
        """Index of the first of `names` that the table has."""
        return next((self.table.columns.index(n) for n in names if n in self.table.columns), None)

    def cells(self, index: int) -> list[Cell]:
        """Values of one column."""
        return [row[index] for row in self.table.rows]

    def numbers(self, index: int) -> list[float | None]:
        """Numbers of one column; times in seconds, others as they are."""
        scale = _TO_SECONDS.get(self.table.units[index], 1)
        return [
            value / scale if isinstance(value, int | float) else None for value in self.cells(index)
        ]

    def buckets(self, index: int) -> list[str]:
        """Lower bounds of token buckets as labels: `512`, `1k` for 1 024, `32k`."""
        return [bucket_label(value) for value in self.cells(index)]

    def shown(self, index: int) -> list[str]:
        """Cells of one column for people."""
        name, unit = self.table.columns[index], self.table.units[index]
        unit = "" if unit in ("name", "tokens") else unit
        return [plot_text(format_value(v, unit, name=name) or "?") for v in self.cells(index)]


def pick_table(record: AuditRecord, ids: Sequence[str]) -> Table | None:
    """The first of the named tables that has rows."""
    return next(
        (record.tables[i] for i in ids if i in record.tables and record.tables[i].rows), None
    )


def ceiling(shares: Sequence[float | str | None]) -> float:
    """The next tenth above the largest share, at most 1."""
    top = max((float(share) for share in shares if share is not None), default=1.0)
    return next((step / 10 for step in range(1, 11) if step / 10 > top), 1.0)


def bucket_label(value: Cell) -> str:
    """A lower bound of a token bucket: `512`, `1k` for 1 024, `32k`."""
    if isinstance(value, int) and value and value % 1024 == 0:
        return f"{value // 1024}k"
    return plot_text(format_value(value, "") or "?")


def show(value: Cell, unit: str, texts: Texts, *, name: str = "") -> str:
    """`value` for a sentence; unknown in words."""
    return format_value(value, unit, name=name) or texts("unknown")


def link_name(link_id: str, texts: Texts) -> str:
    """A link in words; one that a topology names itself keeps its name."""
    return safe_text(texts.or_code("link_id", link_id))


def absent(id: str, texts: Texts, origin: Origin, *, reason: str | None = None) -> ChartView:
    """A figure that cannot be drawn, with the reason and the way out."""
    return ChartView(
        id=id,
        title=texts(f"chart.{id}.title"),
        origin=origin,
        missing=reason or texts(f"chart.{id}.missing"),
    )


def largest(columns: Columns, index: int) -> int:
    """Row of the largest value of a column, unknown ones last."""
    values = columns.numbers(index)
    return max(range(len(values)), key=lambda i: (values[i] is not None, values[i] or 0.0, -i))


def time_axis(columns: Columns, index: int, texts: Texts) -> tuple[list[float | str], Axis]:
    """Instants as dates where the clock is a wall clock, else seconds from the log's start."""
    name, unit = columns.table.columns[index], columns.table.units[index]
    cells = [cell if isinstance(cell, int | float) else 0 for cell in columns.cells(index)]
    if any(is_instant(cell, unit, name) for cell in cells):
        return [format_instant(cell) for cell in cells], Axis(texts("axis.clock"), "date")
    return [value or 0.0 for value in columns.numbers(index)], Axis(texts("axis.time"), "seconds")
