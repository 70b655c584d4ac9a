"""The only door to DuckDB: locked-down connections, variables, frames in and out, Parquet out.

A session can read the Parquet files of the folders that it was opened for and nothing else: no
extension is loaded, no configuration can be changed after opening, no other file can be read.
Parameters are bound (`SET VARIABLE name = ?`), never pasted into SQL.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import duckdb
import polars as pl

from kvtrace.errors import ModelError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

Param = bool | int | float | str | None | Sequence[int] | Sequence[float | None] | Sequence[str]
"""What a query parameter can be."""

_Result = TypeVar("_Result")
_INTERRUPT_EVERY_S: Final = 0.05
"""An interrupt that comes before the query has begun is lost, so it is repeated."""

Cell = bool | int | float | str | None | list["Cell"] | dict[str, "Cell"]
"""What a result cell can be (STYLE.md section 6: no dates, no intervals, no huge integers)."""


class _ArrowStream:
    """A polars frame as an Arrow stream, which DuckDB reads without pyarrow."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


_PLAIN_TYPES: Final = frozenset(
    {
        *("boolean", "float", "double", "varchar", "list", "array", "struct"),
        *("tinyint", "smallint", "integer", "bigint"),
        *("utinyint", "usmallint", "uinteger", "ubigint"),
    }
)


def _readable(relation: DuckDBPyRelation) -> DuckDBPyRelation:
    """The relation with whole huge integers and decimals as numbers, and other odd types as text.

    A sum of integers is HUGEINT in DuckDB: it becomes BIGINT where it fits, else text.
    """
    odd = {
        name: kind.id
        for name, kind in zip(relation.columns, relation.types, strict=True)
        if kind.id not in _PLAIN_TYPES
    }
    if not odd:
        return relation
    columns = []
    for name in relation.columns:
        quoted = '"' + name.replace('"', '""') + '"'
        kind = odd.get(name)
        if kind == "hugeint":
            fits = relation.aggregate(f"coalesce(bool_and(abs({quoted}) < 2::hugeint ** 62), true)")
            target = "bigint" if fits.fetchall()[0][0] else "varchar"
        else:
            target = "double" if kind == "decimal" else "varchar"
        columns.append(quoted if kind is None else f"{quoted}::{target} as {quoted}")
    return relation.project(", ".join(columns))


class Session:
    """One in-memory DuckDB connection over the named folders; close it or use `with`.

    `read_files` are files that may be read one by one, without their folders. `memory_limit` and
    `spill_limit` are DuckDB text such as `2GiB`. Spilled data goes to a private temporary folder
    that is removed on close.
    """

    def __init__(
        self,
        *,
        read_dirs: Sequence[Path] = (),
        write_dirs: Sequence[Path] = (),
        read_files: Sequence[Path] = (),
        threads: int | None = None,
        memory_limit: str | None = None,
        spill_limit: str | None = None,
    ) -> None:
        self._spill = Path(tempfile.mkdtemp(prefix="kvtrace-duckdb-"))
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "temp_directory": str(self._spill),
            "python_enable_replacements": False,  # no SQL reads the variables of this program
        }
        if threads is not None:
            config["threads"] = threads
        if memory_limit is not None:
            config["memory_limit"] = memory_limit
        if spill_limit is not None:
            config["max_temp_directory_size"] = spill_limit
        self._con: DuckDBPyConnection = duckdb.connect(":memory:", config=config)
        self._con.execute("SET TimeZone = 'UTC'")
        self._allow("allowed_directories", [*read_dirs, *write_dirs])
        self._allow("allowed_paths", read_files)
        self._con.execute("SET enable_external_access = false")
        self._con.execute("SET lock_configuration = true")

    def _allow(self, setting: str, paths: Sequence[Path]) -> None:
        if paths:
            # DuckDB takes no bound parameter in SET of a list, so each name is quoted as a literal.
            names = (str(path.resolve()).replace("'", "''") for path in paths)
            literals = ", ".join(f"'{name}'" for name in names)
            self._con.execute(f"SET {setting} = [{literals}]")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and remove what it spilled."""
        self._con.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    def set_variables(self, params: Mapping[str, Param]) -> None:
        """Set the variables that a query reads with `getvariable('name')`."""
        for name, value in params.items():
            if not name.isidentifier():
                raise ModelError("KVT-Q001", f"`{name}` is not a parameter name")
            bound = (
                list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            )
            self._con.execute(f"SET VARIABLE {name} = ?", [bound])

    def create_table(self, name: str, frame: pl.DataFrame) -> None:
        """Copy a polars frame into a table of this session."""
        self._con.register("_incoming", _ArrowStream(frame))
        try:
            self._con.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM _incoming')
        finally:
            self._con.unregister("_incoming")

    def create_parquet_view(self, name: str, parts: Sequence[Path]) -> None:
        """A view over the named Parquet parts, in the given order."""
        literals = ", ".join("'" + str(part).replace("'", "''") + "'" for part in parts)
        self._con.execute(
            f'CREATE OR REPLACE VIEW "{name}" AS SELECT * FROM read_parquet([{literals}])'
        )

    def execute(self, sql: str) -> None:
        """Run a statement of our own for its effect."""
        self._con.execute(sql)

    def frame(
        self, sql: str, *, max_rows: int | None = None, timeout_s: float | None = None
    ) -> pl.DataFrame:
        """The result of one statement as a polars frame; what polars has no type for is text.

        At most `max_rows` rows of it. A signal that raises in this thread stops the query.

        Raises:
            ModelError: KVT-Q002 the query failed, KVT-Q004 it took longer than `timeout_s`.
        """

        def work() -> pl.DataFrame:
            relation = self._con.sql(sql)
            if max_rows is not None:
                relation = relation.limit(max_rows)
            return pl.DataFrame(_readable(relation))

        try:
            return self._interruptible(work, timeout_s)
        except duckdb.Error as error:
            raise ModelError("KVT-Q002", "the query failed", cause=str(error)) from error

    def _interruptible(self, work: Callable[[], _Result], timeout_s: float | None) -> _Result:
        """The result of work on the connection, in a thread, so that signals reach this one."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(work)
            try:
                done = wait([future], timeout=timeout_s).done
            except BaseException:
                self._stop(future)
                raise
            if not done:
                self._stop(future)
                raise ModelError(
                    "KVT-Q004",
                    f"the query took longer than {timeout_s:g} s",
                    hint="aggregate earlier, or pass `--timeout SECONDS`",
                )
            return future.result()

    def _stop(self, future: Future[_Result]) -> None:
        while not future.done():
            self._con.interrupt()
            wait([future], timeout=_INTERRUPT_EVERY_S)

    def syntax_tree(self, sql: str) -> str | None:
        """The syntax tree of a text of SELECT statements as JSON; None for any other text."""
        rows = self._con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
        tree = str(rows[0][0])
        return None if tree.startswith('{"error":true') else tree

    def rows(self, sql: str) -> list[dict[str, Cell]]:
        """The result of one statement as a list of rows by column name."""
        try:
            relation = self._con.sql(sql)
            names = relation.columns
            return [dict(zip(names, row, strict=True)) for row in relation.fetchall()]
        except duckdb.Error as error:
            raise ModelError("KVT-Q002", "the query failed", cause=str(error)) from error

    def is_single_select(self, sql: str) -> bool:
        """Whether DuckDB types the text as exactly one SELECT or EXPLAIN statement."""
        try:
            statements = self._con.extract_statements(sql)
        except duckdb.Error as error:
            raise ModelError("KVT-Q003", "the SQL cannot be parsed", cause=str(error)) from error
        allowed = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
        return len(statements) == 1 and statements[0].type in allowed

    def write_parquet(self, frame: pl.DataFrame, path: Path) -> None:
        """Write a frame as one Parquet file whose dense ids are delta-encoded (format V2).

        The folder must be one of `write_dirs`.
        """
        self._con.register("_outgoing", _ArrowStream(frame))
        target = str(path.resolve()).replace("'", "''")
        try:
            self._con.execute(
                f"COPY (SELECT * FROM _outgoing) TO '{target}' "
                "(FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd)"
            )
        except duckdb.IOException as error:  # disk full, folder gone
            raise OSError(str(error)) from error
        finally:
            self._con.unregister("_outgoing")
