"""Tables made after ingest, with parameters: added to a dataset by a commit of their own.

The parts of all other tables stay as they are, and so does the dataset's digest. The manifest says
which parameters a table was made with, so that an equal request is answered from what is there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import polars as pl

from kvtrace.errors import Location, OutputError
from kvtrace.schema.manifest import DerivedParam
from kvtrace.schema.tables import TABLES
from kvtrace.store.dataset import Dataset, DatasetWriter
from kvtrace.store.lock import OutputLock


def is_derived_with(dataset: Dataset, table: str, params: Mapping[str, DerivedParam]) -> bool:
    """Whether the dataset holds this derived table, made with exactly these parameters."""
    return dataset.manifest.derived.get(table) == dict(params)


def write_derived(
    dataset: Dataset,
    table: str,
    frame: pl.DataFrame,
    params: Mapping[str, DerivedParam],
    *,
    lock: OutputLock | None = None,
) -> Dataset:
    """Add one derived table to a dataset, or replace it; returns the dataset with it.

    `lock` is that of the folder above, where the caller holds it.

    Raises:
        ValueError: `table` is made at ingest, or the frame has other columns.
        OutputError: KVT-O001 the folder cannot be written, KVT-O002 another run holds it, KVT-O008
            the dataset was replaced since it was opened.
    """
    return write_derived_tables(dataset, {table: frame}, params, lock=lock)


def write_derived_tables(
    dataset: Dataset,
    frames: Mapping[str, pl.DataFrame],
    params: Mapping[str, DerivedParam],
    *,
    lock: OutputLock | None = None,
) -> Dataset:
    """Add or replace derived tables that were made together, in one commit; as `write_derived`.

    Raises:
        ValueError, OutputError: as `write_derived`.
    """
    for table in frames:
        if not TABLES[table].is_derived:
            raise ValueError(f"`{table}` is made at ingest")
    with OutputLock(dataset.directory.parent) if lock is None else lock as held:
        # Another run may have added another table since: what is on disk counts.
        manifest = Dataset.open(dataset.directory).manifest
        if manifest.digest != dataset.manifest.digest:
            raise _replaced(dataset)
        kept = {name: parts for name, parts in manifest.tables.items() if name not in frames}
        with DatasetWriter(dataset.directory, lock=held, kept=kept) as writer:
            for table, frame in frames.items():
                writer.write_table(table, frame)
            made = {table: dict(params) for table in frames}
            derived = {**manifest.derived, **made}
            committed = writer.commit(msgspec.structs.replace(manifest, derived=derived))
    return Dataset(dataset.directory, committed)


def _replaced(dataset: Dataset) -> OutputError:
    return OutputError(
        "KVT-O008",
        "the dataset was replaced while something was derived from it",
        where=Location(str(dataset.directory)),
        hint="run the same command again",
    )
