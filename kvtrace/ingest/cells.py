"""Cells of CSV records: splitting them, and reading counts from their text."""

from __future__ import annotations

import csv
from decimal import Decimal, InvalidOperation
from typing import Final

from kvtrace.ingest.limits import MAX_COUNT

_BOM: Final = "\ufeff"


class BadCellError(ValueError):
    """A cell that cannot be used: the reject reason, and the cause without the cell's value."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def split_cells(data: bytes) -> list[str]:
    """The stripped cells of one CSV record; a byte order mark in front is dropped."""
    text = data.decode("utf-8", errors="replace").removeprefix(_BOM)
    if '"' not in text:
        return [cell.strip() for cell in text.split(",")]
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
