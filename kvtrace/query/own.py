"""A person's own query: a file or a text, with our header or without any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kvtrace.errors import Location, ModelError, UsageError
from kvtrace.query.catalog import Catalog
from kvtrace.query.header import UNTYPED, ParamInfo, QueryInfo, parse_columns, parse_query

SQL_SUFFIX: Final = ".sql"
_HEADED: Final = re.compile(r"-- (?:name|question|grain|params|reads|order|note): ")
_VARIABLE: Final = re.compile(r"getvariable\(\s*'(\w+)'\s*\)", re.IGNORECASE)


def read_own(path: Path) -> Catalog:
    """A catalogue of the one query of a file.

    Raises:
        UsageError: the file cannot be read, or its header is not whole.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "KVT-Q018",
            "the SQL file cannot be read",
            where=Location(str(path)),
            cause=str(error) if isinstance(error, UnicodeDecodeError) else error.strerror,
            hint="pass a text file in UTF-8 that holds one SELECT",
        ) from error
    try:
        return own_query(text, name=path.stem, source=str(path))
    except ModelError as error:
        raise UsageError(
            error.code, error.message, where=error.where, cause=error.cause, hint=error.hint
        ) from error


def own_query(text: str, *, name: str, source: str) -> Catalog:
    """A catalogue of the one query of a text, which runs as a person's SQL.

    Without a header its parameters are the variables that it reads, of any type.

    Raises:
        ModelError: it has a header that is not whole.
    """
    if _HEADED.match(text):
        info = parse_query(text, source=source)
    else:
        variables = dict.fromkeys(_VARIABLE.findall(text))
        info = QueryInfo(
            name=name,
            question="",
            grain="",
            params=tuple(ParamInfo(variable, UNTYPED, None) for variable in variables),
            reads=(),
            order="",
            notes=(),
            columns=parse_columns(text),
            sql=text,
        )
    return Catalog({info.name: info}, frozenset({info.name}))
