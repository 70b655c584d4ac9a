"""Folders of queries: ours, and those that a person adds."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from kvtrace.errors import Location, ModelError, UsageError
from kvtrace.query.header import QueryInfo, line_of, parse_query

OURS: Final = "the catalogue"


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


def queries_of(folder: Traversable, shown: str) -> Iterator[tuple[str, QueryInfo]]:
    """The queries of a folder by name: the path without `.sql`."""
    for name, file in _sql_files(folder, ""):
        path = f"{shown}/{name}.sql"
        info = parse_query(file.read_text(encoding="utf-8"), source=path)
        if info.name != name:
            raise ModelError(
                "KVT-Q014",
                f"`{path}` calls itself `{info.name}`",
                where=Location(path, line_of(info.sql, "name")),
                hint=f"write `-- name: {name}`, or move the file",
            )
        yield name, info


def own_queries_of(folder: Path) -> list[tuple[str, QueryInfo]]:
    """The queries of a person's folder by name.

    Raises:
        UsageError: it has none, or one breaks the rules of the header.
    """
    try:
        found = list(queries_of(folder, str(folder))) if folder.is_dir() else []
    except ModelError as error:
        raise UsageError(
            error.code, error.message, where=error.where, cause=error.cause, hint=error.hint
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            "KVT-Q015",
            f"a query in `{folder}` is not UTF-8 text",
            where=Location(str(folder)),
            cause=str(error),
            hint="save it as UTF-8: `iconv -f LATIN1 -t UTF-8 OLD.sql > NEW.sql`",
        ) from error
    if not found:
        raise UsageError(
            "KVT-Q016",
            f"`{folder}` has no query",
            hint="a query is a file `TOPIC/NAME.sql` in it; "
            "`kvtrace query reuse/summary --show-sql` shows one with its header",
        )
    return found


def collision(name: str, place: str, folder: Path) -> UsageError:
    """The error that says which two files have one name."""
    return UsageError(
        "KVT-Q017",
        f"two queries are called `{name}`",
        where=Location(str(folder / f"{name}.sql")),
        cause=f"the other is in {place}",
        hint="rename one, as `my/summary.sql` with `-- name: my/summary`",
    )


def _sql_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _sql_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".sql"):
            yield prefix + entry.name.removesuffix(".sql"), entry
