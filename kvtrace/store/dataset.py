"""The dataset on disk: Parquet parts named by one manifest, whose rename is the commit.

Parts are written to temporary names, forced to disk and renamed to names that no earlier commit
uses; `open.sql` follows, `manifest.json` comes last; only then are the parts of the previous commit
removed. Whoever reads sees the old dataset or the new one. This is the only module that touches
dataset paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

import msgspec
import polars as pl

from kvtrace.duckdb_session import Session
from kvtrace.errors import Location, OutputError
from kvtrace.schema.manifest import SCHEMA_VERSION, Manifest, PartEntry
from kvtrace.schema.table import Dtype, Table
from kvtrace.schema.tables import TABLES
from kvtrace.store.files import (
    TEMPORARY_PREFIX,
    file_digest,
    sync_file,
    sync_folder,
    temporary_name,
    write_atomically,
)
from kvtrace.store.lock import LOCK_NAME, SALT_NAME, OutputLock, unwritable

MANIFEST_NAME: Final = "manifest.json"
OPEN_SQL_NAME: Final = "open.sql"
MAX_PART_ROWS: Final = 5_000_000
_PART: Final = re.compile(r"part-(\d{5,})\.parquet")
_DUCKDB_TYPES: Final[dict[Dtype, str]] = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "uint64": "UBIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
}


class DatasetWriter(AbstractContextManager["DatasetWriter"]):
    """Writes one commit of a dataset folder.

    Takes the lock of the folder above unless the caller already holds it and passes it. Use
    `with`, so that the lock is given back when something fails. `kept` are parts of the commit
    before, by table, that stay as they are.
    """

    def __init__(
        self,
        directory: Path,
        *,
        lock: OutputLock | None = None,
        kept: Mapping[str, Sequence[PartEntry]] = MappingProxyType({}),
    ) -> None:
        self.directory = directory
        self._own_lock = OutputLock(directory.parent) if lock is None else None
        self._parts: dict[str, list[PartEntry]] = {name: [*kept.get(name, ())] for name in TABLES}
        if self._own_lock is not None:
            self._own_lock.acquire()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
        except OSError as error:
            self.close()
            raise unwritable(directory, error) from error
        # One thread writes the same bytes as many do, and holds one group of rows, not all of them.
        self._session = Session(write_dirs=[directory], threads=1)

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the lock back; what was not committed stays invisible."""
        session: Session | None = getattr(self, "_session", None)
        if session is not None:
            session.close()
        if self._own_lock is not None:
            self._own_lock.release()

    def _remove_leftovers(self) -> None:
        """Remove temporary files of a run that was killed."""
        for path in self.directory.rglob(f"{TEMPORARY_PREFIX}*"):
            path.unlink(missing_ok=True)

    def write_table(self, name: str, frame: pl.DataFrame) -> None:
        """Add the rows of a table; an empty frame needs no part.

        Raises:
            OutputError: KVT-O001, the disk is full or the folder cannot be written.
        """
        table = TABLES[name]
        frame = _checked(table, frame)
        for start in range(0, len(frame), MAX_PART_ROWS):
            try:
                self._write_part(name, frame.slice(start, MAX_PART_ROWS))
            except OSError as error:
                raise unwritable(self.directory / name, error) from error

    def _write_part(self, name: str, rows: pl.DataFrame) -> None:
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        path = folder / f"part-{_next_number(folder):05d}.parquet"
        temporary = temporary_name(path)
        self._session.write_parquet(rows, temporary)
        sync_file(temporary)
        entry = PartEntry(
            path=f"{name}/{path.name}",
            rows=len(rows),
            byte_size=temporary.stat().st_size,
            blake2b=file_digest(temporary),
        )
        temporary.replace(path)
        sync_folder(folder)
        self._parts[name].append(entry)

    def commit(self, manifest: Manifest) -> Manifest:
        """Make what was written the dataset; returns the manifest with its parts.

        Raises:
            OutputError: KVT-O001, the folder cannot be written.
        """
        committed = msgspec.structs.replace(manifest, tables=dict(self._parts))
        encoded = msgspec.json.format(msgspec.json.encode(committed, order="sorted"), indent=1)
        try:
            write_atomically(self.directory / OPEN_SQL_NAME, open_sql(committed).encode())
            write_atomically(self.directory / MANIFEST_NAME, encoded + b"\n")
            self._remove_old_parts()
        except OSError as error:
            raise unwritable(self.directory, error) from error
        self.close()
        return committed

    def _remove_old_parts(self) -> None:
        kept = {entry.path for entries in self._parts.values() for entry in entries}
        for name in TABLES:
            folder = self.directory / name
            if not folder.is_dir():
                continue
            for path in folder.iterdir():
                if _PART.fullmatch(path.name) and f"{name}/{path.name}" not in kept:
                    path.unlink()


def _checked(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    schema = table.polars_schema()
    if dict(frame.schema) != schema:
        wrong = sorted(set(frame.schema.items()) ^ set(schema.items()), key=str)
        raise ValueError(f"rows of `{table.name}` have other columns than its schema: {wrong}")
    return frame.select(list(schema))


def _next_number(folder: Path) -> int:
    numbers = [
        int(match.group(1)) for path in folder.iterdir() if (match := _PART.match(path.name))
    ]
    return max(numbers, default=-1) + 1


def open_sql(manifest: Manifest) -> str:
    """SQL that shows the tables to the duckdb CLI, started inside the dataset folder."""
    lines = ["-- Run inside this folder: duckdb -init open.sql"]
    for name, table in TABLES.items():
        parts = [f"'{entry.path}'" for entry in manifest.tables.get(name, [])]
        source = f"SELECT * FROM read_parquet([{', '.join(parts)}])" if parts else _no_rows(table)
        lines.append(f'CREATE OR REPLACE VIEW "{name}" AS {source};')
    return "\n".join(lines) + "\n"


def _no_rows(table: Table) -> str:
    """A typed SELECT that gives no row."""
    columns = ", ".join(
        f'NULL::{_DUCKDB_TYPES[column.dtype]} AS "{column.name}"' for column in table.columns
    )
    return f"SELECT {columns} WHERE false"


class Dataset:
    """A committed dataset, opened for reading."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest

    @classmethod
    def open(cls, directory: Path) -> Dataset:
        """Read the manifest and check that every part is there with the bytes that were written.

        Raises:
            OutputError: KVT-O003 no dataset, KVT-O004 a newer version, KVT-O006 damaged, KVT-O007
                made before a table or column of today was known.
        """
        manifest = _read_manifest(directory)
        for entries in manifest.tables.values():
            for entry in entries:
                _check_part(directory, entry)
        _check_tables(directory, manifest)
        return cls(directory, manifest)

    def parts(self, table: str) -> list[Path]:
        """The Parquet files of a table, in order."""
        return [self.directory / entry.path for entry in self.manifest.tables.get(table, [])]

    def table(self, name: str) -> pl.DataFrame:
        """All rows of a table."""
        parts = self.parts(name)
        if not parts:
            return TABLES[name].empty()
        frame = pl.concat([pl.read_parquet(part) for part in parts])
        return frame.select(list(TABLES[name].polars_schema()))

    def select(self, table: str, columns: Sequence[str], *, of: pl.DataFrame) -> pl.DataFrame:
        """Some columns of the rows whose keys are in `of`, which names its key columns."""
        frames = [TABLES[table].empty().select(columns)]
        for part in self.parts(table):
            rows = pl.read_parquet(part, columns=list(columns))
            frames.append(rows.join(of, on=of.columns, how="semi"))
        return pl.concat(frames)

    def session(
        self,
        *,
        threads: int | None = None,
        memory_limit: str | None = None,
        spill_limit: str | None = None,
    ) -> Session:
        """A DuckDB session with a view per table that can read nothing else."""
        session = Session(
            read_files=[part for name in TABLES for part in self.parts(name)],
            threads=threads,
            memory_limit=memory_limit,
            spill_limit=spill_limit,
        )
        for name, table in TABLES.items():
            parts = [part.resolve() for part in self.parts(name)]
            if parts:
                session.create_parquet_view(name, parts)
            else:
                session.execute(f'CREATE OR REPLACE VIEW "{name}" AS {_no_rows(table)}')
        return session


def _read_manifest(directory: Path) -> Manifest:
    path = directory / MANIFEST_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OutputError(
            "KVT-O003",
            "there is no dataset here",
            where=Location(str(directory)),
            cause=f"{MANIFEST_NAME}: {error.strerror}",
            hint="`kvtrace ingest PATH… -o DIR` makes one in DIR/dataset",
        ) from error
    try:
        version = msgspec.json.decode(data, type=_VersionOnly).schema_version
        if version > SCHEMA_VERSION:
            raise OutputError(
                "KVT-O004",
                f"the dataset has version {version}; this kvtrace reads up to {SCHEMA_VERSION}",
                where=Location(str(directory)),
                hint="use the kvtrace that wrote it or a newer one",
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from error


class _VersionOnly(msgspec.Struct):
    schema_version: int


def _check_tables(directory: Path, manifest: Manifest) -> None:
    """Refuse a dataset without a table or column of today: it would look like no rows, unknown.

    A derived table has none until somebody asks for it.
    """
    absent = [
        name
        for name, table in TABLES.items()
        if name not in manifest.tables and not table.is_derived
    ]
    if absent:
        raise _earlier(directory, f"table `{absent[0]}`")
    for name, entries in manifest.tables.items():
        table = TABLES.get(name)
        if table is None or not entries:
            continue
        known = pl.read_parquet_schema(directory / entries[0].path)
        lacking = [column.name for column in table.columns if column.name not in known]
        if lacking:
            raise _earlier(directory, f"column `{lacking[0]}` of `{name}`")


def _earlier(directory: Path, lacks: str) -> OutputError:
    return OutputError(
        "KVT-O007",
        f"the dataset was made by an earlier kvtrace: it has no {lacks}",
        where=Location(str(directory)),
        hint="run `kvtrace ingest` again into the same folder",
    )


def _check_part(directory: Path, entry: PartEntry) -> None:
    relative = PurePosixPath(entry.path)
    if relative.is_absolute() or ".." in relative.parts:
        raise _damaged(directory / MANIFEST_NAME, "a part lies outside the dataset")
    path = directory / entry.path
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _damaged(path, error.strerror or "missing") from error
    if size != entry.byte_size:
        raise _damaged(path, f"{size} bytes instead of {entry.byte_size}")
    if file_digest(path) != entry.blake2b:
        raise _damaged(path, "its bytes are not those that were written")


def _damaged(path: Path, cause: str) -> OutputError:
    return OutputError(
        "KVT-O006",
        "the dataset is damaged",
        where=Location(str(path)),
        cause=cause,
        hint="run `kvtrace ingest` again into the same folder",
    )


def discard_output(output_dir: Path) -> None:
    """Remove an output folder that never got a dataset: our lock, salt and unnamed parts only."""
    for name in (LOCK_NAME, SALT_NAME):
        (output_dir / name).unlink(missing_ok=True)
    dataset = output_dir / "dataset"
    for path in sorted(dataset.rglob("*"), reverse=True) if dataset.is_dir() else ():
        path.rmdir() if path.is_dir() else path.unlink()
    for folder in (dataset, output_dir):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
