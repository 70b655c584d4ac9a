"""Queries over what was observed: an audit does not run those that have nothing to read."""

from __future__ import annotations

from pathlib import Path

from kvtrace.api.stages import OBSERVED, has_data
from kvtrace.audit.tables.carried import is_carried
from kvtrace.query.catalog import load_catalog
from kvtrace.store.dataset import Dataset
from tests.unit.test_store_dataset import commit


def test_what_is_not_run_would_have_given_the_same(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 1)
    dataset = Dataset.open(tmp_path / "dataset")
    catalog = load_catalog()
    idle = [
        name
        for name in filter(is_carried, catalog.names())
        if not has_data(dataset.manifest, catalog.describe(name).reads)
    ]
    assert "samples/kv_usage" in idle
    assert "kv_events/restored_summary" in idle
    with dataset.session(threads=1) as session:
        for name in idle:
            result = catalog.run(session, name)
            assert result.frame.height == 0, name
            assert catalog.without_rows(name).columns == result.columns
            assert catalog.without_rows(name).units == result.units


def test_queries_over_requests_always_run(tmp_path: Path) -> None:
    commit(tmp_path / "dataset", 1)
    manifest = Dataset.open(tmp_path / "dataset").manifest
    assert has_data(manifest, ("requests",))
    assert has_data(manifest, ("requests", "samples"))
    assert not has_data(manifest, tuple(sorted(OBSERVED)))
