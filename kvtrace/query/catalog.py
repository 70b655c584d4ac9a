"""The catalogue of `queries/**/*.sql`: find, describe, check parameters, run.

The same files run unchanged in the duckdb CLI over a dataset folder after `open.sql`; `show_sql`
gives the lines to paste.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import polars as pl

from kvtrace.duckdb_session import Param, Session
from kvtrace.errors import Location, ModelError, UsageError
from kvtrace.query.header import ColumnInfo, ParamInfo, QueryInfo, parse_columns, parse_query
from kvtrace.query.params import parse_param, to_sql


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A result with the unit and the meaning of each column (empty where the SQL says none)."""

    columns: tuple[str, ...]
    units: tuple[str, ...]
    meanings: tuple[str, ...]
    frame: pl.DataFrame


class Catalog:
    """The named queries."""

    def __init__(self, queries: Mapping[str, QueryInfo]) -> None:
        self._queries = dict(sorted(queries.items()))

    def names(self) -> tuple[str, ...]:
        """Names of all queries, sorted."""
        return tuple(self._queries)

    def describe(self, name: str) -> QueryInfo:
        """One query with its question, grain, parameters and columns.

        Raises:
            UsageError: there is no such query; close matches are named.
        """
        if name not in self._queries:
            raise UsageError(
                "KVT-Q020",
                f"there is no query `{name}`",
                hint=_close(name, self.names(), "`kvtrace query` lists all"),
            )
        return self._queries[name]

    def run(
        self, session: Session, name: str, params: Mapping[str, Param] | None = None
    ) -> QueryResult:
        """The result of one named query; a parameter that is not given takes its default.

        Raises:
            UsageError: no such query, or no such parameter.
            ModelError: the query failed.
        """
        info = self.describe(name)
        _set_params(session, info, params or {})
        frame = session.frame(info.sql)
        return _documented(frame, info.columns)

    def parse_params(self, name: str, texts: Mapping[str, str]) -> dict[str, Param]:
        """Parameters from text, by their declared types; lists are separated by commas.

        Raises:
            UsageError: no such parameter, or the text is not of its type.
        """
        info = self.describe(name)
        _check_names(info, texts)
        types = {param.name: param.type for param in info.params}
        return {key: parse_param(key, types[key], text) for key, text in texts.items()}

    def show_sql(self, name: str, params: Mapping[str, Param] | None = None) -> str:
        """The query with its parameters as text for the duckdb CLI."""
        info = self.describe(name)
        given = params or {}
        _check_names(info, given)
        lines = [
            f"set variable {param.name} = {_assigned(param, given.get(param.name))};"
            for param in info.params
        ]
        return "\n".join([*lines, info.sql.rstrip() + ";", ""])


def load_catalog() -> Catalog:
    """All queries of this installation: those in the package first, else those of the repository.

    Raises:
        ModelError: there are none, or a file breaks the rules of the header.
    """
    root = find_queries()
    queries = {}
    for name, file in _sql_files(root, ""):
        info = parse_query(file.read_text(encoding="utf-8"), source=f"queries/{name}.sql")
        if info.name != name:
            raise ModelError("KVT-Q014", f"`queries/{name}.sql` calls itself `{info.name}`")
        queries[name] = info
    return Catalog(queries)


def find_queries() -> Traversable:
    """The folder of the SQL files: `kvtrace/queries` in a wheel, `queries/` in a checkout."""
    packaged = resources.files("kvtrace") / "queries"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / "queries"
    if checkout.is_dir():
        return checkout
    raise ModelError(
        "KVT-Q013",
        "this installation has no queries",
        where=Location(str(packaged)),
        hint="install kvtrace again: `pip install --force-reinstall kvtrace`",
    )


def _sql_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _sql_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".sql"):
            yield prefix + entry.name.removesuffix(".sql"), entry


def run_sql(session: Session, sql: str, params: Mapping[str, Param] | None = None) -> QueryResult:
    """The result of the user's own SQL: one SELECT (or EXPLAIN); columns may be documented.

    Raises:
        UsageError: the text is anything else than one SELECT.
        ModelError: the SQL cannot be parsed, or failed.
    """
    if not session.is_single_select(sql):
        raise UsageError(
            "KVT-Q021",
            "only a single SELECT can be run",
            hint="a query reads the dataset and changes nothing; run statements one at a time",
        )
    session.set_variables(params or {})
    return _documented(session.frame(sql), parse_columns(sql))


def _documented(frame: pl.DataFrame, columns: Sequence[ColumnInfo]) -> QueryResult:
    known = {column.name: column for column in columns}
    blank = ColumnInfo("", "", "")
    found = [known.get(name, blank) for name in frame.columns]
    return QueryResult(
        columns=tuple(frame.columns),
        units=tuple(column.unit for column in found),
        meanings=tuple(column.meaning for column in found),
        frame=frame,
    )


def _check_names(info: QueryInfo, params: Mapping[str, Param]) -> None:
    """Refuse a parameter that the query does not have."""
    declared = tuple(param.name for param in info.params)
    for name in params:
        if name not in declared:
            fallback = f"it takes {', '.join(declared)}" if declared else "it takes none"
            raise UsageError(
                "KVT-Q022",
                f"query `{info.name}` has no parameter `{name}`",
                hint=_close(name, declared, fallback),
            )


def _set_params(session: Session, info: QueryInfo, params: Mapping[str, Param]) -> None:
    """Set every declared variable, so that nothing is left over from another query."""
    _check_names(info, params)
    session.set_variables({param.name: params.get(param.name) for param in info.params})
    for param in info.params:
        if params.get(param.name) is None and param.default is not None:
            session.execute(f"set variable {param.name} = {_assigned(param, None)}")


def _assigned(param: ParamInfo, value: Param) -> str:
    """A parameter, or its declared default, as SQL text of its type."""
    text = param.default or "null" if value is None else to_sql(value)
    return f"{text}::{param.type.lower()}"


def _close(name: str, names: Sequence[str], fallback: str) -> str:
    """A hint with the closest names, or the fallback."""
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(f'`{match}`' for match in matches)}" if matches else fallback
