"""Mappings in a whole ingest: which file is read by what, sources, fingerprints, errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.pipeline import Ingested, fingerprint, ingest_paths
from kvtrace.ingest.readfile import IngestSettings
from tests.unit.mapped import json_lines, mapping

START_S = 1_767_225_600
TABLE = """
[[source]]
{head}
match = "{match}"
[source.time]
field = "ts"
unit = "s"
[source.fields]
request_id = "id"
prompt_tokens = "p"
"""
PLAIN = '[time]\nfield = "ts"\nunit = "s"\n[fields]\nrequest_id = "id"\nprompt_tokens = "p"'


def _log(path: Path, count: int, *, prefix: str = "r", late_s: int = 0) -> None:
    records = [{"ts": START_S + at + late_s, "id": f"{prefix}{at}", "p": 10} for at in range(count)]
    data = json_lines(records)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _ingest(folder: Path, text: str) -> Ingested:
    settings = IngestSettings(mapping=mapping(text))
    return ingest_paths([folder], settings=settings, salt=b"salt of the tests")


def test_a_mapping_goes_before_the_known_formats(tmp_path: Path) -> None:
    rows = [{"timestamp": at, "input_length": 9, "output_length": 1, "hash_ids": [at]}
            for at in range(20)]  # fmt: skip
    (tmp_path / "trace.jsonl").write_bytes(json_lines(rows))
    turned = '[fields]\nprompt_tokens = "output_length"\noutput_tokens = "input_length"'
    read = _ingest(tmp_path, turned)
    assert read.files[0].format == "mapping"
    assert (read.totals.prompt_tokens, read.totals.output_tokens) == (20, 180)


def test_other_files_beside_a_mapped_one_are_read_as_they_are(tmp_path: Path) -> None:
    _log(tmp_path / "own.jsonl.gz", 5)
    rows = [{"timestamp": at, "input_length": 9, "output_length": 1, "hash_ids": [at]}
            for at in range(20)]  # fmt: skip
    (tmp_path / "trace.jsonl").write_bytes(json_lines(rows))
    read = _ingest(tmp_path, PLAIN)
    assert {entry.path: entry.format for entry in read.files} == {
        "own.jsonl.gz": "mapping",
        "trace.jsonl": "mooncake",
    }


def test_sources_of_a_mapping_are_never_added_up_unless_they_share_a_name(tmp_path: Path) -> None:
    _log(tmp_path / "gateway.jsonl", 6, prefix="g")
    _log(tmp_path / "engine.jsonl", 4, prefix="e")
    apart = "".join(TABLE.format(head="", match=name) for name in ("gateway*", "engine*"))
    assert _ingest(tmp_path, apart).totals.requests == 6
    together = "".join(
        TABLE.format(head='name = "fleet"', match=name) for name in ("gateway*", "engine*")
    )
    read = _ingest(tmp_path, together)
    assert read.totals.requests == 10
    assert {entry.format for entry in read.files} == {"mapping_fleet"}


def test_requests_of_two_mapped_sources_are_joined_by_id(tmp_path: Path) -> None:
    _log(tmp_path / "gateway.jsonl", 5)
    _log(tmp_path / "engine.jsonl", 5, late_s=1)
    apart = "".join(TABLE.format(head="", match=name) for name in ("gateway*", "engine*"))
    read = _ingest(tmp_path, apart)
    assert read.totals.requests == 5
    assert sorted(source.role for source in read.sources) == ["headline", "joined"]


def test_the_fingerprint_has_what_the_mapping_says(tmp_path: Path) -> None:
    _log(tmp_path / "own.jsonl", 3)
    said = [PLAIN, PLAIN + "\n# a comment", PLAIN.replace('"p"', '"ts"')]
    prints = [fingerprint([tmp_path], IngestSettings(mapping=mapping(text))) for text in said] + [
        fingerprint([tmp_path], IngestSettings())
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    described = IngestSettings(mapping=mapping(PLAIN)).described()
    assert described["mapping"] == mapping(PLAIN).digest
    assert json.dumps(described)


def test_a_mapping_that_fits_no_file_stops_the_run(tmp_path: Path) -> None:
    _log(tmp_path / "own.jsonl", 3)
    with pytest.raises(UsageError) as caught:
        _ingest(tmp_path, '[fields]\nprompt_tokens = "prompt"\noutput_tokens = "output"')
    assert caught.value.code == "KVT-U036"
    assert "own.jsonl" in (caught.value.cause or "")


def test_benchmarks_are_marked(tmp_path: Path) -> None:
    _log(tmp_path / "own.jsonl", 3)
    read = _ingest(tmp_path, "benchmark = true\n" + PLAIN)
    assert read.frames["requests"]["is_benchmark"].all()
