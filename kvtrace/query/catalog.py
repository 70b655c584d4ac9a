"""The catalogue of `queries/**/*.sql`: find, describe, check parameters, run.

The same files run unchanged in the duckdb CLI over a dataset folder after `open.sql`; `show_sql`
gives the lines to paste.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from kvtrace.duckdb_session import Param, Session
from kvtrace.errors import ModelError, UsageError
from kvtrace.query.folders import OURS, collision, find_queries, own_queries_of, queries_of
from kvtrace.query.guard import guarded
from kvtrace.query.header import ColumnInfo, ParamInfo, QueryInfo
from kvtrace.query.limits import NO_LIMITS, Limits
from kvtrace.query.params import parse_param, to_sql


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A result with the unit and the meaning of each column (empty where the SQL says none)."""

    columns: tuple[str, ...]
    units: tuple[str, ...]
    meanings: tuple[str, ...]
    frame: pl.DataFrame
    is_cut: bool = False
    """There are more rows than were asked for."""


class Catalog:
    """The named queries; `guarded_names` are those that are not ours, and run as a person's SQL."""

    def __init__(
        self, queries: Mapping[str, QueryInfo], guarded_names: frozenset[str] = frozenset()
    ) -> None:
        self._queries = dict(sorted(queries.items()))
        self._guarded = guarded_names

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

    def topics(self) -> dict[str, tuple[str, ...]]:
        """Names of the queries by topic, both sorted."""
        grouped: dict[str, list[str]] = {}
        for name in self._queries:
            grouped.setdefault(name.split("/")[0], []).append(name)
        return {topic: tuple(names) for topic, names in grouped.items()}

    def search(self, words: str) -> tuple[str, ...]:
        """Names of the queries that hold every word in their name, question, columns or notes."""
        wanted = words.lower().split()
        return tuple(
            name
            for name, info in self._queries.items()
            if all(word in _searched(info) for word in wanted)
        )

    def is_guarded(self, name: str) -> bool:
        """Whether a query came from a folder that is not ours."""
        return name in self._guarded

    def run(
        self,
        session: Session,
        name: str,
        params: Mapping[str, Param] | None = None,
        limits: Limits = NO_LIMITS,
    ) -> QueryResult:
        """The result of one named query; a parameter that is not given takes its default.

        Raises:
            UsageError: no such query, or no such parameter.
            ModelError: the query failed, took too long or gave too many rows.
        """
        info = self.describe(name)
        sql = guarded(session, info.sql) if self.is_guarded(name) else info.sql
        _set_params(session, info, params or {})
        return _limited(session, sql, info.columns, limits)

    def without_rows(self, name: str) -> QueryResult:
        """The result of a named query that finds nothing, without running it."""
        info = self.describe(name)
        schema = {column.name: pl.Null() for column in info.columns}
        return _documented(pl.DataFrame(schema=schema), info.columns)

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


def load_catalog(folders: Sequence[Path] = ()) -> Catalog:
    """All queries of this installation, and those of `folders`, whose names must be their own.

    Raises:
        ModelError: there are none, or a file of ours breaks the rules of the header.
        UsageError: a folder cannot be used: it has no query, a file breaks the rules of the
            header, or two files have one name.
    """
    queries = dict(queries_of(find_queries(), "queries"))
    if not folders:
        return Catalog(queries)
    places = dict.fromkeys(queries, OURS)
    for folder in folders:
        for name, info in own_queries_of(folder):
            if name in places:
                raise collision(name, places[name], folder)
            queries[name], places[name] = info, str(folder / f"{name}.sql")
    own = (name for name, place in places.items() if place != OURS)
    return Catalog(queries, frozenset(own))


def _limited(
    session: Session, sql: str, columns: Sequence[ColumnInfo], limits: Limits
) -> QueryResult:
    """The documented result within bounds; a row beyond them tells that there are more."""
    most = limits.rows if limits.rows is not None else limits.max_rows
    try:
        frame = session.frame(
            sql, max_rows=None if most is None else most + 1, timeout_s=limits.timeout_s
        )
    except ModelError as error:
        raise _with_hint(error) from error
    if most is None or len(frame) <= most:
        return _documented(frame, columns)
    if limits.rows is None:
        raise ModelError(
            "KVT-Q005",
            f"the query gives more than {most:,} rows",
            hint="aggregate, or pass `--limit N` to get the first N",
        )
    return replace(_documented(frame.head(most), columns), is_cut=True)


def _with_hint(error: ModelError) -> ModelError:
    """What a person can do about a query that ran into a bound."""
    hint = error.hint
    if "Out of Memory" in (error.cause or ""):
        hint = "join on a key and aggregate earlier: memory and temporary disk are bounded here"
    return ModelError(error.code, error.message, where=error.where, cause=error.cause, hint=hint)


def _searched(info: QueryInfo) -> str:
    columns = (f"{column.name} {column.meaning}" for column in info.columns)
    return "\n".join((info.name, info.question, *info.notes, *columns)).lower()


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
    return f"{text}::{param.type.lower()}" if param.type else text


def _close(name: str, names: Sequence[str], fallback: str) -> str:
    """A hint with the closest names, or the fallback."""
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(f'`{match}`' for match in matches)}" if matches else fallback
