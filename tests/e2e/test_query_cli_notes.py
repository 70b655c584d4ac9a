"""What `kvtrace query` says where it has no rows, or nothing to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.errors import UsageError
from tests.conftest import REPO


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    api.ingest([REPO / "sample_traces" / "router-trace.jsonl.zst"], output=folder)
    return folder


def test_a_table_that_was_not_made_names_the_command(dataset: Path) -> None:
    (note,) = [
        one for one in api.query(dataset, "policies/hits").notes if one.startswith("no rows")
    ]
    assert "`kvtrace policies`" in note


def test_no_offending_row_is_said_to_be_good(dataset: Path) -> None:
    assert "no rows: nothing offends" in api.query(dataset, "quality/negative_values").notes


def test_a_parameter_that_is_no_number_is_refused(dataset: Path) -> None:
    with pytest.raises(UsageError, match="is not a DOUBLE"):
        api.query(dataset, "reuse/ttl_curve", params={"ttls_s": "nan"})


def test_one_path_may_be_given_alone(tmp_path: Path) -> None:
    alone = api.ingest(str(REPO / "sample_traces" / "router-trace.jsonl.zst"), output=tmp_path)
    assert alone.dataset.manifest.totals.requests > 0
