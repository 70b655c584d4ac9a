"""One directory with logs of every kind gives the union of what each gives alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from kvtrace.exec.progress import SilentProgress
from kvtrace.ingest.files.discover import discover
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.pipeline import Ingested, ingest_paths
from kvtrace.ingest.readfile import FileReader, IngestSettings
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sources import FileRead
from tests.formats.reading import DATA

SALT = b"salt"
GOOD = sorted(
    path
    for path in DATA.rglob("*")
    if path.is_file() and not path.name.startswith(("malformed", "damaged"))
)
_OBSERVED = ("samples", "transfers", "block_events")
_BOUND_TO_THE_RUN = ("sample_key", "transfer_key", "event_key", "source_id")
_DATED_BY_THE_LOG = ("observed_at_ns", "started_at_ns")
"""A clock that counts from the first time of its log: the same log gives the same zero."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mixed = tmp_path_factory.mktemp("mixed")
    for path in GOOD:
        shutil.copy2(path, mixed / "-".join(path.relative_to(DATA).parts))
    return mixed


@pytest.fixture(scope="module")
def together(folder: Path) -> Ingested:
    settings = IngestSettings(max_reject_rate=1.0, allow_inert_pickle=True)
    return ingest_paths([folder], settings=settings, salt=SALT)


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[list[FileRead]]:
    reader = FileReader(
        IngestSettings(allow_inert_pickle=True),
        KeyedHasher(SALT),
        SilentProgress(),
        all_formats(),
    )
    return [reader.read(file) for file in discover([folder]).files]


def comparable(frame: pl.DataFrame) -> pl.DataFrame:
    dropped = [*_BOUND_TO_THE_RUN, *_DATED_BY_THE_LOG]
    columns = [name for name in frame.columns if name not in dropped]
    return frame.select(columns).sort(columns, nulls_last=True)


def test_every_good_fixture_is_recognised(together: Ingested) -> None:
    assert [entry.path for entry in together.files if entry.format is None] == []


def test_records_of_each_file_are_counted_as_alone(
    together: Ingested, alone: list[list[FileRead]]
) -> None:
    counted = {
        parts[0].entry.path: (
            parts[0].entry.format,
            parts[0].entry.rows_in,
            parts[0].entry.kept,
            parts[0].entry.rejected,
            parts[0].entry.blank,
        )
        for parts in alone
    }
    assert {
        entry.path: (entry.format, entry.rows_in, entry.kept, entry.rejected, entry.blank)
        for entry in together.files
    } == counted


@pytest.mark.parametrize("table", _OBSERVED)
def test_observations_are_the_union(
    table: str, together: Ingested, alone: list[list[FileRead]]
) -> None:
    parts = [
        getattr(part.rows, table) for parts in alone for part in parts if part.rows is not None
    ]
    union = comparable(pl.concat(parts))
    assert not union.is_empty()
    assert comparable(together.frames[table]).equals(union)


def test_requests_are_joined_or_stand_beside_and_none_is_lost(
    together: Ingested, alone: list[list[FileRead]]
) -> None:
    held = sum(
        len(part.rows.requests) for parts in alone for part in parts if part.rows is not None
    )
    copies = sum(entry.ignored_by_reason.get("exact_copy", 0) for entry in together.files)
    assert sum(source.requests for source in together.sources) + copies == held
    headline = next(source for source in together.sources if source.role == "headline")
    rows = together.frames["requests"].filter(pl.col("source_id") == headline.source_id)
    assert len(rows) == together.totals.requests
    assert together.totals.requests < held  # sources that may be the same requests never add up


def test_blocks_are_those_of_the_files_that_have_them(
    together: Ingested, alone: list[list[FileRead]]
) -> None:
    keyed = sum(
        len(part.rows.block_counts) for parts in alone for part in parts if part.rows is not None
    )
    assert 0 < together.frames["blocks"]["request_key"].n_unique() <= keyed
