"""A query result as CSV, Markdown and Parquet: for spreadsheets, documents and other programs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import Final, Literal

from kvtrace.query.catalog import QueryResult
from kvtrace.report.format import safe_text
from kvtrace.report.text.table import shown_cell

Mode = Literal["table", "json", "csv", "markdown", "parquet"]
MODES: Final[tuple[Mode, ...]] = ("table", "json", "csv", "markdown", "parquet")
MODE_OF_SUFFIX: Final[dict[str, Mode]] = {
    ".csv": "csv",
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".parquet": "parquet",
}
_FORMULA_STARTS: Final = tuple("=+-@\t\r＝＋－＠")
"""What a spreadsheet takes for the start of a formula."""
_MAX_CELL: Final = 10_000
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def to_csv(result: QueryResult) -> str:
    r"""Comma-separated values with a header, after RFC 4180 but for line ends (LF).

    Null is an empty field, an empty text is `""`. A text that a spreadsheet would run as a formula
    gets an apostrophe in front; numbers never do. Control characters are written as `\u001b`.
    """
    rows = [result.columns, *result.frame.iter_rows()]
    return "\n".join(",".join(map(_csv_field, row)) for row in rows)


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else ""
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if text.startswith(_FORMULA_STARTS):
        text = "'" + text
    text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    is_quoted = not text or text != text.strip() or any(one in text for one in ',"\n')
    return '"' + text.replace('"', '""') + '"' if is_quoted else text


def to_markdown(result: QueryResult) -> str:
    """A Markdown table, its numbers as people read them; every text is code, so it stays inert."""
    frame = result.frame
    texts = [not (kind.is_numeric() or kind.is_nested()) for kind in frame.dtypes]
    rule = ["---" if is_text else "---:" for is_text in texts]
    rows = [[_markdown_cell(value) for value in row] for row in frame.iter_rows()]
    heads = [_code(name) for name in result.columns]
    return "\n".join(_markdown_line(cells) for cells in (heads, rule, *rows))


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(value: object) -> str:
    is_text = not (value is None or isinstance(value, int | float))
    return _code(str(value)) if is_text else shown_cell(value)


def _code(text: str) -> str:
    """A code span that ends where the text ends, in one cell."""
    shown = safe_text(text, limit=_MAX_CELL).replace("|", "\\|")
    if not shown.strip():
        return ""
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def to_parquet(name: str, result: QueryResult) -> bytes:
    """A Parquet file; its key `kvtrace` holds the query and the unit and meaning of each column."""
    columns = [
        {"name": column, "unit": unit, "meaning": meaning}
        for column, unit, meaning in zip(result.columns, result.units, result.meanings, strict=True)
    ]
    about = json.dumps({"query": name, "columns": columns}, ensure_ascii=False, sort_keys=True)
    buffer = io.BytesIO()
    result.frame.write_parquet(buffer, compression="zstd", metadata={"kvtrace": about})
    return buffer.getvalue()


def inert_json(text: str) -> str:
    """JSON text in which control and direction-changing characters are escaped, same meaning."""
    return _BEYOND_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_BEYOND_JSON: Final = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
