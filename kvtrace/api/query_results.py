"""The rows of a query as a value: for Python, people, scripts and other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kvtrace.api.querymodes import Mode, inert_json, to_csv, to_markdown, to_parquet
from kvtrace.query.catalog import QueryResult
from kvtrace.report.text.table import fitted_table, text_table


def to_json(document: object) -> str:
    """One JSON document as text: sorted keys, no NaN, no newline at the end."""
    return json.dumps(document, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1)


@dataclass(frozen=True, slots=True)
class QueryTable:
    """The result of a query."""

    name: str
    result: QueryResult
    notes: tuple[str, ...] = ()
    """What a reader must know of it: parameters that nobody typed, rows that were left out."""

    def to_json(self) -> str:
        """Columns with unit and meaning, and the rows."""
        columns = [
            {"name": name, "unit": unit, "meaning": meaning}
            for name, unit, meaning in zip(
                self.result.columns, self.result.units, self.result.meanings, strict=True
            )
        ]
        return inert_json(to_json({"query": self.name, "columns": columns, "rows": self.rows()}))

    def rows(self) -> list[dict[str, object]]:
        """The rows by column name; not-a-number and infinity are null."""
        return [
            {name: _finite(value) for name, value in row.items()}
            for row in self.result.frame.iter_rows(named=True)
        ]

    def to_text(self, width: int | None = None) -> str:
        """The table for people, within `width` columns where that is given."""
        rows = [tuple(row.values()) for row in self.rows()]
        return fitted_table(self.result.columns, rows, width)

    def brief_text(self, columns: Sequence[str]) -> str:
        """Some columns for people, ratios to four decimals."""
        rows = [[_brief(row[name]) for name in columns] for row in self.rows()]
        return text_table(columns, rows)

    def to_csv(self) -> str:
        """The rows for a spreadsheet; texts that would be formulas are made inert."""
        return to_csv(self.result)

    def to_markdown(self) -> str:
        """The rows as a Markdown table."""
        return to_markdown(self.result)

    def to_parquet(self) -> bytes:
        """The rows as a Parquet file, exactly."""
        return to_parquet(self.name, self.result)

    def rendered(self, mode: Mode, *, width: int | None = None) -> bytes:
        """The table in one of the modes, text with a newline at its end."""
        if mode == "parquet":
            return self.to_parquet()
        if mode == "table":
            text = self.to_text(width)
        else:
            makers = {"json": self.to_json, "csv": self.to_csv, "markdown": self.to_markdown}
            text = makers[mode]()
        return (text + "\n").encode("utf-8", errors="backslashreplace")


def _brief(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value


def _finite(value: object) -> object:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
