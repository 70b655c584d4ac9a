"""The JSON documents: sorted, finite, valid against the shipped schemas, readable when old."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvtrace.audit import ingest_report, jsonio
from kvtrace.audit.build import build_audit
from kvtrace.audit.ingest_report import (
    INGEST_SCHEMA_TITLE,
    IngestReport,
    build_ingest_report,
    dump_ingest_report,
    ingest_schema,
)
from kvtrace.audit.record import AUDIT_SCHEMA_VERSION, AuditRecord
from kvtrace.errors import ExitCode, OutputError
from tests.unit.audit_fakes import make_input, make_manifest

AUDIT_DIR = Path(jsonio.__file__).parent


def shipped(name: str) -> dict[str, Any]:
    loaded = json.loads((AUDIT_DIR / name).read_bytes())
    assert isinstance(loaded, dict)
    return loaded


def test_shipped_schemas_are_those_of_the_types() -> None:
    # After a change of the types: scripts/gen_schemas.py
    audit = jsonio.schema_bytes(AuditRecord, title=jsonio.AUDIT_SCHEMA_TITLE)
    ingest = jsonio.schema_bytes(IngestReport, title=INGEST_SCHEMA_TITLE)
    assert (AUDIT_DIR / "audit.schema.json").read_bytes() == audit
    assert (AUDIT_DIR / "ingest.schema.json").read_bytes() == ingest
    assert shipped("audit.schema.json") == jsonio.schema()
    assert shipped("ingest.schema.json") == ingest_schema()


@pytest.mark.parametrize("grade", ["A", "B", "C", "L"])
def test_every_record_is_valid_and_survives_the_round_trip(grade: Any) -> None:
    changes: dict[str, Any] = {} if grade == "A" else {"queries": {}, "replays": (), "trace": None}
    record = build_audit(make_input(manifest=make_manifest(grade), **changes))
    text = jsonio.dump(record)
    schema = shipped("audit.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)
    assert jsonio.dump(jsonio.load(text)) == text


def test_the_schema_refuses_a_record_without_a_verdict() -> None:
    document = json.loads(jsonio.dump(build_audit(make_input())))
    del document["verdict"]
    with pytest.raises(jsonschema.ValidationError, match="verdict"):
        jsonschema.validate(document, shipped("audit.schema.json"))


def test_dump_sorts_keys_and_ends_with_a_newline() -> None:
    text = jsonio.dump(build_audit(make_input()))
    assert text.endswith(b"}\n")
    document = json.loads(text)
    assert json.dumps(document, sort_keys=True) == json.dumps(document)


def test_dump_has_no_nan_and_no_infinity() -> None:
    record = build_audit(make_input())
    record.options[0].ttft_s.mean = float("nan")
    record.options[0].ttft_s.p50 = float("inf")

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} in the document")

    document = json.loads(jsonio.dump(record), parse_constant=refuse)
    assert document["options"][0]["ttft_s"]["mean"] is None
    assert document["options"][0]["ttft_s"]["p50"] is None


def test_same_input_gives_the_same_bytes() -> None:
    assert jsonio.dump(build_audit(make_input())) == jsonio.dump(build_audit(make_input()))


def test_a_newer_schema_version_is_refused_with_a_hint() -> None:
    document = json.loads(jsonio.dump(build_audit(make_input())))
    document["schema_version"] = AUDIT_SCHEMA_VERSION + 1
    with pytest.raises(OutputError) as caught:
        jsonio.load(json.dumps(document).encode(), path="old/audit.json")
    assert caught.value.code == "KVT-A001"
    assert caught.value.exit_code == ExitCode.OUTPUT
    assert caught.value.where is not None
    assert caught.value.where.path == "old/audit.json"
    assert caught.value.hint


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"schema_version":1}', b"\xff\xfe", b"nul"])
def test_what_is_no_audit_is_refused(text: bytes) -> None:
    with pytest.raises(OutputError, match="not an audit record") as caught:
        jsonio.load(text)
    assert caught.value.code == "KVT-A002"


def test_unknown_fields_of_a_same_version_record_are_ignored() -> None:
    document = json.loads(jsonio.dump(build_audit(make_input())))
    document["later_addition"] = {"a": 1}
    record = jsonio.load(json.dumps(document).encode())
    assert record.verdict.outcome == "pays"


def test_ingest_document_has_the_contract_of_scripts() -> None:
    report = build_ingest_report(make_manifest())
    document = json.loads(dump_ingest_report(report))
    jsonschema.validate(document, shipped("ingest.schema.json"))
    assert sorted(document) == ["digest", "files", "schema_version", "sources", "totals"]
    assert sorted(document["files"][0]) == [
        "blank",
        "evidence_grade",
        "format",
        "ignored",
        "kept",
        "notes",
        "path",
        "rejected",
        "rows_in",
        "used",
    ]
    (entry,) = document["files"]
    assert entry["rows_in"] == entry["kept"] + entry["rejected"] + entry["blank"] == 2003
    assert entry["kept"] == entry["used"] + entry["ignored"]
    totals = document["totals"]
    assert totals["prompt_tokens"] == 20_000_000
    assert totals["cached_tokens"] is None
    assert totals["cached_tiers"] == {"device": None, "disk": None, "host": None, "remote": None}
    assert document["schema_version"] == ingest_report.INGEST_SCHEMA_VERSION


def test_audit_data_has_the_totals_at_its_top_level() -> None:
    document = json.loads(jsonio.dump(build_audit(make_input())))
    totals = json.loads(dump_ingest_report(build_ingest_report(make_manifest())))["totals"]
    assert {name: document["data"][name] for name in totals} == totals
