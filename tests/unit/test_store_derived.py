"""Tables that are derived after ingest: a commit of their own, with parameters, beside the rest."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import polars as pl
import pytest

from kvtrace.errors import OutputError
from kvtrace.schema.facts import POLICY_HITS, POOL_HITS
from kvtrace.schema.manifest import DerivedParam, Manifest
from kvtrace.schema.tables import TABLES
from kvtrace.store.dataset import Dataset, DatasetWriter
from kvtrace.store.derived import is_derived_with, write_derived
from kvtrace.store.lock import OutputLock
from tests.unit.test_store_dataset import commit


def pool_rows(*instances: int) -> pl.DataFrame:
    rows = [
        {
            "cache_domain": 0,
            "routing": "one",
            "instances": count,
            "capacity_blocks": 1,
            "total_capacity_blocks": count,
            "hit_blocks": 0,
            "hit_tokens": 0,
            "block_refs": 1,
            "prompt_tokens": 1,
        }
        for count in instances
    ]
    return pl.DataFrame(rows, schema=POOL_HITS.polars_schema())


def made(directory: Path) -> Dataset:
    commit(directory, 1, 2)
    return Dataset.open(directory)


def test_dataset_without_a_derived_table_has_it_empty(tmp_path: Path) -> None:
    dataset = made(tmp_path / "dataset")
    assert dataset.table("policy_hits").equals(POLICY_HITS.empty())
    assert not is_derived_with(dataset, "policy_hits", {})
    assert (
        'VIEW "policy_hits" AS SELECT NULL::INTEGER' in (tmp_path / "dataset/open.sql").read_text()
    )


def test_manifest_of_an_earlier_kvtrace_stays_readable(tmp_path: Path) -> None:
    made(tmp_path / "dataset")
    path = tmp_path / "dataset/manifest.json"
    held = json.loads(path.read_text())
    del held["derived"]
    for name, table in TABLES.items():
        if table.is_derived:
            del held["tables"][name]
    path.write_text(json.dumps(held))
    dataset = Dataset.open(tmp_path / "dataset")
    assert dataset.manifest.derived == {}
    with dataset.session() as session:
        assert session.rows("select count(*) as n from pool_hits") == [{"n": 0}]
    assert write_derived(dataset, "pool_hits", pool_rows(1), {}).table("pool_hits").height == 1


def test_derived_table_joins_the_dataset_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    dataset = made(tmp_path / "dataset")
    before = dataset.manifest
    params: dict[str, DerivedParam] = {"instances": [1, 2], "routing": "one", "share": 0.5}
    after = write_derived(dataset, "pool_hits", pool_rows(1, 2), params)
    assert after.table("pool_hits")["instances"].to_list() == [1, 2]
    assert (after.manifest.digest, after.manifest.tables["keys"]) == (
        before.digest,
        before.tables["keys"],
    )
    reopened = Dataset.open(tmp_path / "dataset")
    assert reopened.manifest == after.manifest
    assert is_derived_with(reopened, "pool_hits", params)
    assert not is_derived_with(reopened, "pool_hits", {**params, "share": 0.25})
    assert "'pool_hits/part-00000.parquet'" in (tmp_path / "dataset/open.sql").read_text()


def test_second_derivation_replaces_the_rows_and_keeps_other_derived_tables(tmp_path: Path) -> None:
    dataset = made(tmp_path / "dataset")
    write_derived(dataset, "policy_hits", POLICY_HITS.empty(), {"policies": ["lru"]})
    write_derived(dataset, "pool_hits", pool_rows(1), {"n": 1})
    # `dataset` was opened before both: what is on disk counts, not what the caller remembers.
    after = write_derived(dataset, "pool_hits", pool_rows(4), {"n": 4})
    assert after.manifest.derived == {"policy_hits": {"policies": ["lru"]}, "pool_hits": {"n": 4}}
    assert after.table("pool_hits")["instances"].to_list() == [4]
    assert [p.name for p in (tmp_path / "dataset/pool_hits").iterdir()] == ["part-00001.parquet"]
    assert after.table("keys").height == 2


def test_next_ingest_forgets_what_was_derived(tmp_path: Path) -> None:
    write_derived(made(tmp_path / "dataset"), "pool_hits", pool_rows(1), {"n": 1})
    commit(tmp_path / "dataset", 3)
    dataset = Dataset.open(tmp_path / "dataset")
    assert dataset.manifest.derived == {}
    assert dataset.table("pool_hits").is_empty()
    assert not list((tmp_path / "dataset/pool_hits").iterdir())


def test_caller_that_holds_the_lock_keeps_it(tmp_path: Path) -> None:
    dataset = made(tmp_path / "dataset")
    with OutputLock(tmp_path) as lock:
        write_derived(dataset, "pool_hits", pool_rows(1), {}, lock=lock)
        with pytest.raises(OutputError) as caught:
            write_derived(dataset, "pool_hits", pool_rows(1), {})
    assert caught.value.code == "KVT-O002"
    write_derived(dataset, "pool_hits", pool_rows(1), {})


def test_rows_of_another_dataset_are_not_added(tmp_path: Path) -> None:
    dataset = made(tmp_path / "dataset")
    other: Manifest = msgspec.structs.replace(dataset.manifest, digest="other")
    with DatasetWriter(tmp_path / "dataset") as writer:
        writer.commit(other)
    with pytest.raises(OutputError) as caught:
        write_derived(dataset, "pool_hits", pool_rows(1), {})
    assert caught.value.code == "KVT-O008"


def test_table_of_ingest_is_not_derived(tmp_path: Path) -> None:
    dataset = made(tmp_path / "dataset")
    with pytest.raises(ValueError, match="made at ingest"):
        write_derived(dataset, "keys", dataset.table("keys"), {})
