"""Cells of CSV records: splitting them, and reading counts from their text."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Final, TypeVar

from kvtrace.ingest.contract import Guess, Head, ReadContext, Record
from kvtrace.ingest.files.frame import MAX_RECORD_BYTES
from kvtrace.ingest.values.limits import MAX_COUNT

_BOM: Final = "\ufeff"

RowT = TypeVar("RowT")
"""A row, or a row with its prompt."""


class BadCellError(ValueError):
    """A cell that cannot be used: the reject reason, and the cause without the cell's value."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class CsvTable:
    """The rows of a CSV file that has these columns in its header, wherever they stand."""

    required: tuple[str, ...]
    context: ReadContext
    _columns: dict[str, int] = field(default_factory=dict)
    _width: int = 0
    """Cells of the header; a name may stand in it twice."""

    def cells(self, record: Record) -> dict[str, str] | None:
        """The cells of one record by column, or None if it is a header, which is then ignored.

        Raises:
            BadCellError: it stands before the header or has another number of cells.
        """
        cells = split_cells(record.data)
        if set(self.required) <= set(cells):
            self.context.tally.ignore("repeated_header" if self._columns else "header")
            self._columns = {name: position for position, name in enumerate(cells)}
            self._width = len(cells)
            return None
        if not self._columns:
            raise BadCellError("no_header", "a row stands before the header")
        if len(cells) != self._width:
            raise BadCellError("wrong_cell_count", f"{self._width} cells are due")
        return {name: cells[position] for name, position in self._columns.items()}

    def rows(
        self,
        records: Iterable[Record],
        parse: Callable[[Record, dict[str, str]], RowT],
    ) -> Iterator[RowT]:
        """The rows of all records; what `parse` cannot use is rejected."""
        tally = self.context.tally
        for record in records:
            try:
                cells = self.cells(record)
                row = None if cells is None else parse(record, cells)
            except BadCellError as bad:
                tally.reject(record, bad.reason, bad.detail)
                continue
            if row is not None:
                tally.use()
                yield row


def sniff_columns(head: Head, required: tuple[str, ...]) -> Guess | None:
    """A file whose CSV header has all these columns."""
    if not set(required) <= {cell.strip() for cell in head.csv_header}:
        return None
    return Guess(0.99, f"the CSV header has {', '.join(required)}")


def split_cells(data: bytes) -> list[str]:
    """The stripped cells of one CSV record; a byte order mark in front is dropped."""
    text = data.decode("utf-8", errors="replace").removeprefix(_BOM)
    if '"' not in text:
        return [cell.strip() for cell in text.split(",")]
    csv.field_size_limit(MAX_RECORD_BYTES)  # the limit of the module is a small 128 KiB
    try:
        return [cell.strip() for cell in next(csv.reader([text], strict=True))]
    except (csv.Error, StopIteration) as cause:
        raise BadCellError("invalid_csv", "quotes do not match") from cause


def parse_count(text: str, column: str) -> int:
    """A count of tokens or images, from 0 to `MAX_COUNT`; `12.0` counts as 12.

    Raises:
        BadCellError: empty, negative, fractional, too large or no number at all.
    """
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    number = parse_decimal(text, column)
    if number < 0:
        raise BadCellError("negative_number", f"`{column}` is negative")
    if number > MAX_COUNT:
        raise BadCellError("number_too_large", f"`{column}` is larger than any count")
    if number != int(number):
        raise BadCellError("invalid_number", f"`{column}` is not a whole number")
    return int(number)


def parse_decimal(text: str, column: str) -> Decimal:
    """A finite decimal number, exact.

    Raises:
        BadCellError: empty, not a number, or not finite.
    """
    try:
        number = Decimal(text)
    except InvalidOperation as cause:
        raise BadCellError("invalid_number", f"`{column}` is not a number") from cause
    if not number.is_finite():
        raise BadCellError("invalid_number", f"`{column}` is not finite")
    return number
