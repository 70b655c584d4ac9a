"""Records that are JSON objects of a known shape: one row each, or a reject with its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from kvtrace.ingest.contract import Record, Row, Tally

RowT = TypeVar("RowT", bound=Row)


def json_rows(
    records: Iterable[Record], tally: Tally, parse: Callable[[Record], RowT]
) -> Iterator[RowT]:
    """The rows of all records. `parse` says what it cannot use with msgspec's own errors."""
    for record in records:
        try:
            row = parse(record)
        except msgspec.ValidationError as bad:
            tally.reject(record, "invalid_field", str(bad))
        except (msgspec.DecodeError, RecursionError):
            tally.reject(record, "invalid_json", None)
        else:
            tally.use()
            yield row
