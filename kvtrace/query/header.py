"""The header and the column comments of a query file: what makes it a documented query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvtrace.errors import Location, ModelError

PARAM_TYPES: Final = ("BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "BIGINT[]", "DOUBLE[]", "VARCHAR[]")
UNTYPED: Final = ""
"""Type of a parameter that nobody declared: its text says what it is."""
REQUIRED: Final = ("name", "question", "grain", "params", "reads", "order")
_EXAMPLES: Final = {
    "name": "topic/name",
    "question": "How many requests have no prompt?",
    "grain": "one row per status",
    "params": "none",
    "reads": "requests",
    "order": "status",
}
_HEADER_LINE = re.compile(r"-- (\w+): (.*\S)\s*")
_PARAM = re.compile(r"([A-Za-z_]\w*) (\w+(?:\[\])?)(?: = (.+))?")
_VALUE = r"(?:null|true|false|[-+]?[0-9][0-9_.]*(?:[eE][-+]?[0-9]+)?|'(?:[^']|'')*')"
_LITERAL = re.compile(rf"{_VALUE}|\[(?:{_VALUE}(?:, ?{_VALUE})*)?\]")
"""What a default can be: it is pasted into SQL, so nothing but a value may stand there."""
_COLUMN = re.compile(r'    .*?"?(\w+)"?,?\s+-- ([^:]+): (.*\S)\s*')


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """One parameter, read in the SQL with `getvariable(name)`."""

    name: str
    type: str
    """One of PARAM_TYPES, or UNTYPED."""
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
        raise ModelError(
            "KVT-Q010",
            f"`{source}` has no `-- {missing[0]}:` line in its header",
            where=Location(source, 1),
            hint=f"add `-- {missing[0]}: {_EXAMPLES[missing[0]]}` to the lines on top",
        )
    columns = parse_columns(text)
    if not columns:
        raise ModelError(
            "KVT-Q011",
            f"`{source}` documents no result column",
            where=Location(source, len(text.splitlines()) or 1),
            hint="after a line with `select` alone, give each column a line of its own, as"
            " `    count(*) as requests,   -- requests: what they are`",
        )
    return QueryInfo(
        name=fields["name"],
        question=fields["question"],
        grain=fields["grain"],
        params=_params(fields["params"], Location(source, line_of(text, "params"))),
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
    for number, line in enumerate(text.splitlines(), start=1):
        match = _HEADER_LINE.fullmatch(line)
        if match is None:
            break
        key, value = match.groups()
        if key == "note":
            notes.append(value)
        elif key in REQUIRED and key not in fields:
            fields[key] = value
        else:
            raise ModelError(
                "KVT-Q010",
                f"`{source}` has an odd header line `-- {key}:`",
                where=Location(source, number),
                hint=f"a header has {', '.join(REQUIRED)}, each once, and any number of `note`",
            )
    return fields, tuple(notes)


def line_of(text: str, key: str) -> int | None:
    """The number of the header line `-- key:`; None without one."""
    lines = enumerate(text.splitlines(), start=1)
    return next((number for number, line in lines if line.startswith(f"-- {key}:")), None)


def _params(text: str, where: Location) -> tuple[ParamInfo, ...]:
    if text == "none":
        return ()
    found = []
    for part in _parts(text):
        match = _PARAM.fullmatch(part)
        default = None if match is None else match.group(3)
        is_value = default is None or _LITERAL.fullmatch(default) is not None
        if match is None or match.group(2) not in PARAM_TYPES or not is_value:
            raise ModelError(
                "KVT-Q012",
                f"`{where.path}` declares a parameter as `{part}`",
                where=where,
                hint=f"write `NAME TYPE = default`, the type one of {', '.join(PARAM_TYPES)}, the"
                " default a value or null, or `none` for no parameter",
            )
        name, kind, _ = match.groups()
        found.append(ParamInfo(name, kind, None if default in (None, "null") else default))
    return tuple(found)


def _parts(text: str) -> list[str]:
    """The declarations, cut at commas that a name and a type follow."""
    return re.split(r", (?=[A-Za-z_]\w* [A-Z]+(?:\[\])?(?: = |, |$))", text)


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
