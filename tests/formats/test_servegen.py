"""ServeGen's files: recognised, and said to be no requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.errors import InputError
from kvtrace.ingest.formats.servegen import FORMATS
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

SERVEGEN = FORMATS[0]
TRACE = (DATA / "servegen" / "chunk-0-trace.csv").read_bytes()
DATASET = (DATA / "servegen" / "chunk-0-dataset.json").read_bytes()


@pytest.mark.parametrize("data", [TRACE, DATASET])
def test_distributions_are_no_requests(data: bytes) -> None:
    assert sniffed(all_formats(), data) == "servegen"
    reading = read_bytes(SERVEGEN, data)
    assert reading.rows == []
    assert set(reading.ignored) == {"distribution"}
    assert reading.note_codes == {"distributions_not_requests"}


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "chunk-0-trace.csv"
    path.write_bytes(TRACE)
    with pytest.raises(InputError) as refused:
        ingest_paths([path], salt=b"salt")
    assert "generate a workload" in (refused.value.cause or "")


@pytest.mark.parametrize(
    "data", [b"1,2,3,4,5,6\n7,8,9,1,2,3\n", b"0,1.5,hello,Gamma,1\n", b"time,rate\n0,Gamma\n"]
)
def test_other_tables_are_not_taken(data: bytes) -> None:
    assert sniffed(all_formats(), data) is None
