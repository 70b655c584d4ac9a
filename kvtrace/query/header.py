"""The header and the column comments of a query file: what makes it a documented query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvtrace.errors import ModelError

PARAM_TYPES: Final = ("BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "BIGINT[]", "DOUBLE[]", "VARCHAR[]")
REQUIRED: Final = ("name", "question", "grain", "params", "reads", "order")
_HEADER_LINE = re.compile(r"-- (\w+): (.*\S)\s*")
_PARAM = re.compile(r"(\w+) (\w+(?:\[\])?)(?: = (.+))?")
_COLUMN = re.compile(r'    .*?"?(\w+)"?,?\s+-- ([^:]+): (.*\S)\s*')


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """One parameter, read in the SQL with `getvariable(name)`."""

    name: str
    type: str
    """One of PARAM_TYPES."""
    default: str | None
    """SQL text of the declared default; None: null."""


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column of the result."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """One named query with what it says of itself."""

    name: str
    question: str
    grain: str
    params: tuple[ParamInfo, ...]
    reads: tuple[str, ...]
    order: str
    notes: tuple[str, ...]
    columns: tuple[ColumnInfo, ...]
    sql: str
    """The file's text, as it runs."""


def parse_query(text: str, *, source: str) -> QueryInfo:
    """The query of a file's text; `source` names the file in errors.

    Raises:
        ModelError: a header line is missing or unreadable, or no column is documented.
    """
    fields, notes = _header(text, source)
    missing = [key for key in REQUIRED if key not in fields]
    if missing:
        raise ModelError("KVT-Q010", f"`{source}` has no `-- {missing[0]}:` line in its header")
    columns = parse_columns(text)
    if not columns:
        raise ModelError("KVT-Q011", f"`{source}` documents no result column")
    return QueryInfo(
        name=fields["name"],
        question=fields["question"],
        grain=fields["grain"],
        params=_params(fields["params"], source),
        reads=tuple(part.strip() for part in fields["reads"].split(",")),
        order=fields["order"],
        notes=notes,
        columns=columns,
        sql=text,
    )


def _header(text: str, source: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The `-- key: value` lines on top; `note` may repeat, the rest may not."""
    fields: dict[str, str] = {}
    notes: list[str] = []
    for line in text.splitlines():
        match = _HEADER_LINE.fullmatch(line)
        if match is None:
            break
        key, value = match.groups()
        if key == "note":
            notes.append(value)
        elif key in REQUIRED and key not in fields:
            fields[key] = value
        else:
            raise ModelError("KVT-Q010", f"`{source}` has an odd header line `-- {key}:`")
    return fields, tuple(notes)


def _params(text: str, source: str) -> tuple[ParamInfo, ...]:
    if text == "none":
        return ()
    found = []
    for part in text.split(", "):
        match = _PARAM.fullmatch(part)
        if match is None or match.group(2) not in PARAM_TYPES:
            raise ModelError("KVT-Q012", f"`{source}` declares a parameter as `{part}`")
        name, kind, default = match.groups()
        found.append(ParamInfo(name, kind, None if default in (None, "null") else default))
    return tuple(found)


def parse_columns(sql: str) -> tuple[ColumnInfo, ...]:
    """Result columns with their `-- unit: meaning` comments, from the last outer select."""
    lines = sql.splitlines()
    selects = [number for number, line in enumerate(lines) if line == "select"]
    if not selects:
        return ()
    columns = []
    for line in lines[selects[-1] + 1 :]:
        if line.startswith("from "):
            break
        match = _COLUMN.fullmatch(line)
        if match is not None:
            columns.append(ColumnInfo(*match.groups()))
    return tuple(columns)
