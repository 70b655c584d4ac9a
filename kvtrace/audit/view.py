"""Query results by name, as plain rows: the reading side of the audit's inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Option

Value = bool | int | float | str | None
Row = dict[str, Value]
WINDOW_QUERY: Final = "latency/hit_and_ttft_thirds"
"""Hit ratio and TTFT of the whole window and of its thirds."""


def rows_of(queries: Mapping[str, ResultOfQuery], name: str) -> list[Row]:
    """The rows of a query; empty where it was not run."""
    result = queries.get(name)
    return [] if result is None else [dict(row) for row in result.frame.iter_rows(named=True)]


def summary_of(queries: Mapping[str, ResultOfQuery], name: str) -> Row:
    """The only row of a summary query; empty where it was not run."""
    rows = rows_of(queries, name)
    return rows[0] if rows else {}


def number(row: Row, column: str) -> float | None:
    """A finite number of a row, or None where it is unknown."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole_window(queries: Mapping[str, ResultOfQuery]) -> Row:
    """Hit ratios and TTFT of the whole window; empty where the query was not run."""
    rows = rows_of(queries, WINDOW_QUERY)
    return next((row for row in rows if row.get("third") == 0), {})


def count(row: Row, column: str) -> int | None:
    """A whole number of a row, or None where it is unknown."""
    value = row.get(column)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def hit_tokens(option: Option) -> int:
    """Tokens that the option serves from any tier."""
    return sum(option.hit_tokens_by_tier.values())
