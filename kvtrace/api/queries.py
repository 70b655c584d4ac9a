"""`query` and its listings: find, describe, show and run queries, ours and a person's own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvtrace.api.describequery import QueryDescription, list_lines
from kvtrace.api.opened import open_dataset
from kvtrace.api.query_results import QueryTable, to_json
from kvtrace.api.queryparams import known_params
from kvtrace.config import Settings, resolve_settings
from kvtrace.duckdb_session import Param
from kvtrace.errors import UsageError
from kvtrace.query.catalog import Catalog, load_catalog
from kvtrace.query.header import QueryInfo
from kvtrace.query.limits import OWN_MAX_ROWS, OWN_MEMORY, OWN_SPILL, OWN_TIMEOUT_S, Limits
from kvtrace.query.own import SQL_SUFFIX, own_query, read_own

Folders = Sequence[Path | str]


def query(
    dataset: Path | str,
    name: str | None = None,
    *,
    params: Mapping[str, str] | None = None,
    sql: str | None = None,
    folders: Folders = (),
    limit: int | None = None,
    timeout_s: float | None = None,
    settings: Settings | None = None,
) -> QueryTable:
    """A named query, a `.sql` file or one SELECT of the caller's own, over a dataset.

    `folders` add queries to the catalogue; `limit` cuts the rows; `settings` may name the LLM that
    byte figures are of. What is not ours runs within bounds of memory, disk, rows and time.

    Raises:
        UsageError: no such query or parameter, SQL that is not one SELECT, a folder that cannot
            be used.
        ModelError: the query failed or passed a bound.
    """
    opened = open_dataset(dataset)
    catalog, info = _find(name, sql, folders)
    given = catalog.parse_params(info.name, params or {})
    wanted = {param.name for param in info.params} - set(given)
    known = known_params(opened, wanted, settings or resolve_settings())
    bound = {**{one.name: one.value for one in known}, **given}
    is_own = catalog.is_guarded(info.name)
    limits = Limits(
        rows=limit,
        max_rows=OWN_MAX_ROWS if is_own else None,
        timeout_s=timeout_s if timeout_s is not None else OWN_TIMEOUT_S if is_own else None,
    )
    with opened.session(
        memory_limit=OWN_MEMORY if is_own else None, spill_limit=OWN_SPILL if is_own else None
    ) as session:
        result = catalog.run(session, info.name, bound, limits)
    notes = [str(one) for one in known]
    if result.is_cut:
        notes.append(f"only the first {limit:,} rows; there are more")
    if result.frame.is_empty():
        notes.append(_why_empty(info))
    return QueryTable(info.name, result, tuple(notes))


def _why_empty(info: QueryInfo) -> str:
    """No rows, with what the query says of it; of quality queries it is good."""
    if info.name.startswith("quality/"):
        return "no rows: nothing offends"
    said = [note.rstrip(".") for note in info.notes if note.startswith("no rows")]
    tables = ", ".join(info.reads)
    return said[0] if said else f"no rows: the dataset holds nothing for this question ({tables})"


def list_queries(search: str = "", *, folders: Folders = (), width: int = 100) -> list[str]:
    """The queries by topic with their questions, those alone that hold every word of `search`."""
    catalog = _catalog(folders)
    found = catalog.search(search)
    return list_lines([catalog.describe(name) for name in found], width)


def query_index(search: str = "", *, folders: Folders = ()) -> str:
    """The same as JSON, with grain and parameters."""
    catalog = _catalog(folders)
    described = [catalog.describe(name) for name in catalog.search(search)]
    return to_json(
        [
            {
                "name": one.name,
                "topic": one.name.partition("/")[0],
                "question": one.question,
                "grain": one.grain,
                "params": [param.name for param in one.params],
            }
            for one in described
        ]
    )


def describe_query(name: str, *, folders: Folders = ()) -> QueryDescription:
    """What a query, or a `.sql` file, says of itself.

    Raises:
        UsageError: there is no such query; close matches are named.
    """
    return QueryDescription(_find(name, None, folders)[1])


def has_query(name: str, *, folders: Folders = ()) -> bool:
    """Whether a query of this name, or a `.sql` file, is there."""
    return _is_file(name) or name in _catalog(folders).names()


def close_queries(name: str, *, folders: Folders = ()) -> tuple[str, ...]:
    """At most three queries named nearly so, with or without their topic; nearest first."""
    whole = {one: one for one in _catalog(folders).names()}
    known = whole if "/" in name else {one.rpartition("/")[2]: one for one in whole}
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.7)
    return tuple(known[one] for one in close)


def show_sql(
    name: str,
    params: Mapping[str, str] | None = None,
    *,
    dataset: Path | str | None = None,
    folders: Folders = (),
    settings: Settings | None = None,
) -> str:
    """A query with its parameters as text for the duckdb CLI, as it would run over `dataset`."""
    catalog, info = _find(name, None, folders)
    given = catalog.parse_params(info.name, params or {})
    bound: dict[str, Param] = {}
    if dataset is not None:
        wanted = {param.name for param in info.params} - set(given)
        known = known_params(open_dataset(dataset), wanted, settings or resolve_settings())
        bound = {one.name: one.value for one in known}
    return catalog.show_sql(info.name, {**bound, **given})


def _catalog(folders: Folders) -> Catalog:
    return load_catalog([Path(folder) for folder in folders])


def _is_file(name: str) -> bool:
    return name.endswith(SQL_SUFFIX) and Path(name).is_file()


def _find(name: str | None, sql: str | None, folders: Folders) -> tuple[Catalog, QueryInfo]:
    """The query that is asked for, in a catalogue that can run it."""
    if sql is not None:
        own = own_query(sql, name="sql", source="--sql")
    elif name is not None and _is_file(name):
        own = read_own(Path(name))
    else:
        catalog = _catalog(folders)
        if name is not None and name.endswith(SQL_SUFFIX):
            raise UsageError(
                "KVT-Q019",
                f"there is no file `{name}`",
                hint=f"a query of the catalogue is named without `{SQL_SUFFIX}`",
            )
        return catalog, catalog.describe(name or "")
    return own, own.describe(own.names()[0])
