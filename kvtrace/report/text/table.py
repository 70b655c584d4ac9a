"""Plain tables for terminals: numbers to the right, null as `unknown`, no line too long to read."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from kvtrace.report.format import safe_text

_WHOLE_FROM: Final = 100_000
"""From here on a float is shown without decimals."""
_GAP: Final = 2
_MAX_CELL: Final = 10_000
"""Longest text of one cell."""
_MIN_TEXT: Final = 20
"""Columns that a wrapped text gets at least, however narrow the terminal is."""
_WIDE_COLUMNS: Final = 6
"""Columns past which a single row stands upright."""


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain table, as wide as it needs."""
    return _lines(_Grid(header, rows))


def fields_table(header: Sequence[str], row: Sequence[object], width: int | None = None) -> str:
    """One row as a line a field; a long value goes on below itself."""
    names = [safe_text(name) for name in header]
    label = max((_columns(name) for name in names), default=0)
    lines: list[str] = []
    for name, value in zip(names, row, strict=True):
        padded = _padded(name, label, is_number=False) + " " * _GAP
        room = None if width is None else max(width - label - _GAP, _MIN_TEXT)
        first, *more = [shown_cell(value)] if room is None else _wrapped(shown_cell(value), room)
        lines.append((padded + first).rstrip())
        lines += [" " * (label + _GAP) + line for line in more]
    return "\n".join(lines)


def fitted_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None
) -> str:
    """A table that keeps within `width` columns; None: as wide as it needs.

    A single row that is wide stands upright. A wider table comes in bands of columns, each band
    behind the first column again; where not even two columns fit side by side, every row is a
    block of its own.
    """
    if len(rows) == 1 and len(header) > _WIDE_COLUMNS:
        return fields_table(header, rows[0], width)
    grid = _Grid(header, rows)
    if width is None or grid.width <= width:
        return _lines(grid)
    if len(rows) == 1:
        return fields_table(header, rows[0], width)
    bands = _bands(grid, width)
    if bands is None:
        blocks = (
            f"row {number}\n{fields_table(header, row, width)}"
            for number, row in enumerate(rows, start=1)
        )
        return "\n\n".join(blocks)
    return "\n\n".join(_lines(grid.of(band)) for band in bands)


def shown_cell(value: object) -> str:
    """A value for people; nothing in a text of a log can act on a terminal."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return safe_text(str(value), limit=_MAX_CELL)


class _Grid:
    """A table with its cells as text and the width of each column."""

    def __init__(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.header = [safe_text(name) for name in header]
        self.cells = [[shown_cell(value) for value in row] for row in rows]
        self.widths = [
            max(map(_columns, column)) for column in zip(self.header, *self.cells, strict=True)
        ]
        self.is_number = [
            all(isinstance(row[i], int | float) or row[i] is None for row in rows)
            for i in range(len(self.header))
        ]

    @property
    def width(self) -> int:
        """Columns of a terminal that the table takes."""
        return sum(self.widths) + _GAP * (len(self.widths) - 1)

    def of(self, columns: Sequence[int]) -> _Grid:
        """The table with these columns alone."""
        part = _Grid([], [])
        part.header = [self.header[i] for i in columns]
        part.cells = [[row[i] for i in columns] for row in self.cells]
        part.widths = [self.widths[i] for i in columns]
        part.is_number = [self.is_number[i] for i in columns]
        return part


def _bands(grid: _Grid, width: int) -> list[list[int]] | None:
    """Column numbers of each band; None where a column does not fit beside the first."""
    bands = [[0]]
    used = grid.widths[0]
    for column, wide in enumerate(grid.widths[1:], start=1):
        if grid.widths[0] + _GAP + wide > width:
            return None
        if used + _GAP + wide > width:
            bands.append([0])
            used = grid.widths[0]
        bands[-1].append(column)
        used += _GAP + wide
    return bands if used <= width else None


def _lines(grid: _Grid) -> str:
    rule = ["-" * width for width in grid.widths]
    return "\n".join(_line(grid, row) for row in (grid.header, rule, *grid.cells))


def _line(grid: _Grid, values: Sequence[str]) -> str:
    padded = (
        _padded(value, width, is_number=right)
        for value, width, right in zip(values, grid.widths, grid.is_number, strict=True)
    )
    return (" " * _GAP).join(padded).rstrip()


def _padded(text: str, width: int, *, is_number: bool) -> str:
    fill = " " * (width - _columns(text))
    return fill + text if is_number else text + fill


def _columns(text: str) -> int:
    """Columns of a terminal: wide characters take two, marks on others none."""
    if text.isascii():
        return len(text)
    return sum(_character_columns(character) for character in text)


def _character_columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of at most `width` columns, at least one line."""
    narrow = width if text.isascii() else max(width // 2, 1)
    return iter(textwrap.wrap(text, narrow, drop_whitespace=False) or [""])
