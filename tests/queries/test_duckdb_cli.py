"""Every query runs unchanged in the duckdb CLI over a dataset folder, with the same rows."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.query.catalog import load_catalog
from tests.conftest import REPO

BESIDE_PYTHON = Path(sys.executable).parent / "duckdb"
CLI = str(BESIDE_PYTHON) if BESIDE_PYTHON.exists() else shutil.which("duckdb")
pytestmark = pytest.mark.skipif(CLI is None, reason="no duckdb CLI on this machine")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the sample traces."""
    folder = tmp_path_factory.mktemp("cli")
    api.ingest([REPO / "sample_traces"], output=folder)
    return folder


@pytest.mark.parametrize("name", load_catalog().names())
def test_query_gives_the_same_rows_in_the_cli(name: str, output: Path) -> None:
    assert CLI is not None
    params = {"kv_bytes_per_token": "131072"} if "kv_bytes" in api.show_sql(name) else {}
    done = subprocess.run(
        [CLI, "-csv", "-init", "open.sql", "-nullvalue", "NULL"],
        input=api.show_sql(name, params, dataset=output),
        cwd=output / "dataset",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    seen = list(csv.DictReader(io.StringIO(done.stdout)))
    expected = api.query(output, name, params=params).rows()
    assert len(seen) == len(expected)
    for ours, theirs in zip(expected, seen, strict=True):
        for column, value in ours.items():
            if isinstance(value, float):
                assert float(theirs[column]) == pytest.approx(value, rel=1e-12)
            elif value is None:
                assert theirs[column] == "NULL"
            elif isinstance(value, bool):
                assert theirs[column] == str(value).lower()
            else:
                assert theirs[column] == str(value)
