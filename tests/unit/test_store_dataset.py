"""The dataset on disk: one rename commits, readers see old or new, damage is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import polars as pl
import pytest

from kvtrace.duckdb_session import Session
from kvtrace.errors import ModelError, OutputError
from kvtrace.schema.manifest import SCHEMA_VERSION, Manifest, Totals
from kvtrace.schema.tables import TABLES
from kvtrace.store import dataset as dataset_module
from kvtrace.store.dataset import Dataset, DatasetWriter
from kvtrace.store.files import file_digest
from kvtrace.store.lock import OutputLock


def manifest() -> Manifest:
    totals = Totals(
        requests=0,
        requests_by_status={},
        prompt_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        cached_known_requests=0,
        cache_write_tokens=None,
        cached_tiers={},
        block_refs=None,
        distinct_blocks=None,
        block_size_tokens=None,
        samples=0,
        transfers=0,
        rejected=0,
    )
    return Manifest(
        schema_version=SCHEMA_VERSION,
        kvtrace_version="0",
        settings={},
        inputs_fingerprint="f",
        files=[],
        sources=[],
        domains=[],
        totals=totals,
        tables={},
        digest="d",
    )


def keys(*hashes: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"cache_domain": [0] * len(hashes), "block": range(len(hashes)), "chained_hash": hashes},
        schema=TABLES["keys"].polars_schema(),
    )


def commit(directory: Path, *hashes: int) -> Manifest:
    with DatasetWriter(directory) as writer:
        writer.write_table("keys", keys(*hashes))
        return writer.commit(manifest())


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 2**64 - 1, 7)
    opened = Dataset.open(tmp_path / "dataset")
    assert opened.table("keys").equals(keys(2**64 - 1, 7))
    assert opened.table("blocks").equals(TABLES["blocks"].empty())
    assert opened.manifest.digest == "d"


def test_dataset_without_a_table_of_today_is_refused(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 1)
    path = tmp_path / "dataset/manifest.json"
    held = json.loads(path.read_text())
    del held["tables"]["block_stays"]
    path.write_text(json.dumps(held))
    with pytest.raises(OutputError, match="block_stays") as caught:
        Dataset.open(tmp_path / "dataset")
    assert caught.value.code == "KVT-O007"


def test_dataset_without_a_column_of_today_is_refused(tmp_path: Path) -> None:
    requests = pl.DataFrame({"request_key": [1]}, schema={"request_key": pl.Int64})
    with DatasetWriter(tmp_path / "dataset") as writer:
        writer.write_table("keys", keys(1))
        made = writer.commit(manifest())
    part = tmp_path / "dataset" / made.tables["keys"][0].path
    requests.write_parquet(part)
    entry = {"path": made.tables["keys"][0].path, "rows": 1, "byte_size": part.stat().st_size}
    path = tmp_path / "dataset/manifest.json"
    held = json.loads(path.read_text())
    held["tables"]["keys"][0] |= entry | {"blake2b": file_digest(part)}
    path.write_text(json.dumps(held))
    with pytest.raises(OutputError, match="no column `cache_domain` of `keys`") as caught:
        Dataset.open(tmp_path / "dataset")
    assert caught.value.code == "KVT-O007"


def test_every_table_is_a_view_even_without_rows(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 1)
    with Dataset.open(tmp_path / "dataset").session(threads=1, memory_limit="500MiB") as session:
        assert session.rows("select count(*) as n from keys") == [{"n": 1}]
        for name, table in TABLES.items():
            assert dict(session.frame(f"select * from {name}").schema) == table.polars_schema()


def test_session_reads_nothing_but_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    commit(tmp_path / "dataset", 1)
    with Dataset.open(tmp_path / "dataset").session() as session, pytest.raises(ModelError):
        session.rows(f"select * from '{tmp_path / 'secret.csv'}'")


def test_manifest_names_parts_with_size_and_digest(tmp_path: Path) -> None:
    (part,) = commit(tmp_path / "dataset", 1, 2).tables["keys"]
    path = tmp_path / "dataset" / part.path
    assert (part.path, part.rows) == ("keys/part-00000.parquet", 2)
    assert (part.byte_size, part.blake2b) == (path.stat().st_size, file_digest(path))
    assert json.loads((tmp_path / "dataset/manifest.json").read_text())["tables"]["blocks"] == []


def test_big_tables_are_cut_into_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_module, "MAX_PART_ROWS", 2)
    committed = commit(tmp_path / "dataset", 5, 6, 7)
    assert [part.rows for part in committed.tables["keys"]] == [2, 1]
    assert Dataset.open(tmp_path / "dataset").table("keys")["chained_hash"].to_list() == [5, 6, 7]


def test_next_commit_replaces_the_rows_and_removes_old_parts(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 1)
    commit(tmp_path / "dataset", 2)
    assert Dataset.open(tmp_path / "dataset").table("keys")["chained_hash"].to_list() == [2]
    assert [p.name for p in (tmp_path / "dataset/keys").iterdir()] == ["part-00001.parquet"]


def test_run_killed_before_its_commit_leaves_the_old_dataset(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 1)
    with DatasetWriter(tmp_path / "dataset") as writer:
        writer.write_table("keys", keys(9, 9))
        (tmp_path / "dataset/keys/.tmp-part-00009.parquet").write_bytes(b"half")
    assert Dataset.open(tmp_path / "dataset").table("keys")["chained_hash"].to_list() == [1]
    commit(tmp_path / "dataset", 3)
    assert Dataset.open(tmp_path / "dataset").table("keys")["chained_hash"].to_list() == [3]
    assert [p.name for p in (tmp_path / "dataset/keys").iterdir()] == ["part-00002.parquet"]


def test_same_commit_gives_the_same_manifest(tmp_path: Path) -> None:
    commit(tmp_path / "a" / "dataset", 1, 2, 3)
    commit(tmp_path / "b" / "dataset", 1, 2, 3)
    assert (tmp_path / "a/dataset/manifest.json").read_bytes() == (
        tmp_path / "b/dataset/manifest.json"
    ).read_bytes()


def test_open_sql_makes_the_same_views_inside_the_folder(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 4)
    sql = (tmp_path / "dataset/open.sql").read_text()
    script = (
        "import sys, os\n"
        "os.chdir(sys.argv[1])\n"
        "import duckdb\n"
        "con = duckdb.connect()\n"
        "con.execute(open('open.sql').read())\n"
        "print(con.sql('select chained_hash from keys').fetchall(),\n"
        "      con.sql('select count(flags) from requests').fetchall())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "dataset")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[(4,)] [(0,)]\n"
    assert "'keys/part-00000.parquet'" in sql


def test_other_columns_than_the_schema_are_a_bug(tmp_path: Path) -> None:
    with (
        DatasetWriter(tmp_path / "dataset") as writer,
        pytest.raises(ValueError, match="other columns than its schema"),
    ):
        writer.write_table("keys", keys(1).rename({"block": "blk"}))


def test_missing_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        Dataset.open(tmp_path)
    assert caught.value.code == "KVT-O003"


def test_newer_version_is_refused_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema_version": 99, "unheard": "of"}')
    with pytest.raises(OutputError) as caught:
        Dataset.open(tmp_path)
    assert caught.value.code == "KVT-O004"


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 1}', "[]"])
def test_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(OutputError) as caught:
        Dataset.open(tmp_path)
    assert caught.value.code == "KVT-O006"


def test_missing_or_cut_part_is_named(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 1)
    part = tmp_path / "dataset/keys/part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(OutputError, match="damaged") as caught:
        Dataset.open(tmp_path / "dataset")
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("part-00000.parquet")
    part.unlink()
    with pytest.raises(OutputError, match="damaged"):
        Dataset.open(tmp_path / "dataset")


@pytest.mark.parametrize("outside", ["../secret", "/etc/hostname"])
def test_part_outside_the_folder_is_refused(tmp_path: Path, outside: str) -> None:
    committed = commit(tmp_path / "dataset", 1)
    part = msgspec.structs.replace(committed.tables["keys"][0], path=outside)
    changed = msgspec.structs.replace(committed, tables={"keys": [part]})
    (tmp_path / "dataset/manifest.json").write_bytes(msgspec.json.encode(changed))
    with pytest.raises(OutputError, match="damaged"):
        Dataset.open(tmp_path / "dataset")


def test_second_writer_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "dataset"), pytest.raises(OutputError) as caught:
        DatasetWriter(tmp_path / "dataset")
    assert caught.value.code == "KVT-O002"
    assert caught.value.cause == f"it is held by process {os.getpid()}"
    commit(tmp_path / "dataset", 1)  # the lock was given back


def test_writer_uses_the_lock_that_the_caller_holds(tmp_path: Path) -> None:
    with OutputLock(tmp_path) as lock:
        with DatasetWriter(tmp_path / "dataset", lock=lock) as writer:
            writer.commit(manifest())
        with pytest.raises(OutputError):
            DatasetWriter(tmp_path / "dataset")
    assert Dataset.open(tmp_path / "dataset").parts("keys") == []


def test_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        DatasetWriter(tmp_path / "file" / "dataset")
    assert caught.value.code == "KVT-O001"


def test_folder_that_vanishes_while_writing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Session, frame: pl.DataFrame, path: Path) -> None:
        raise OSError(28, "No space left on device")

    with DatasetWriter(tmp_path / "dataset") as writer:
        monkeypatch.setattr(Session, "write_parquet", full)
        with pytest.raises(OutputError) as caught:
            writer.write_table("keys", keys(1))
    assert caught.value.code == "KVT-O001"
    assert caught.value.cause == "No space left on device"
