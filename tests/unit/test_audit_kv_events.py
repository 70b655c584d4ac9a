"""The finding on tokens that the fleet computed again: its numbers, words and confidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import Finding
from kvtrace.schema.manifest import Note
from tests.unit.audit_fakes import make_input, make_manifest, query, reuse_queries

SUMMARY = {
    "events": 9000,
    "instances": 2,
    "span_s": 7200.0,
    "computed_tokens": 100_000,
    "restored_tokens": 25_000,
    "restored_ratio_tokens": 0.25,
    "other_instance_holds_tokens": 15_000,
    "same_instance_removed_tokens": 10_000,
    "other_instance_removed_tokens": None,
    "loaded_tokens": 300,
    "blocks_without_tokens": 0,
}


def finding(*notes: str, **changes: Any) -> Finding | None:
    queries = reuse_queries() | {"kv_events/restored_summary": query([SUMMARY | changes])}
    manifest = make_manifest()
    manifest.totals.notes.extend(Note(code=code, message="x") for code in notes)
    record = build_audit(replace(make_input(queries=queries), manifest=manifest))
    return next((one for one in record.findings if one.id == "restored_tokens"), None)


def test_it_says_how_much_and_where() -> None:
    found = finding()
    assert found is not None
    assert found.severity == "warning"
    assert "25,000 of 100,000 computed tokens (25.0 %)" in found.message
    assert "15,000 while another instance held them (routing would do)" in found.message
    assert "10,000 after the same instance dropped them (more capacity)" in found.message
    evidence = {one.id: one.value for one in found.evidence}
    assert evidence["restored_tokens"] == 25_000
    assert evidence["computed_tokens"] == 100_000
    assert evidence["loaded_tokens"] == 300
    assert "other_instance_removed_tokens" not in evidence


def test_little_and_nothing_are_said_as_well() -> None:
    little = finding(restored_tokens=1_000, restored_ratio_tokens=0.01)
    nothing = finding(restored_tokens=None, restored_ratio_tokens=None)
    assert little is not None
    assert nothing is not None
    assert (little.severity, nothing.severity) == ("info", "info")
    assert "none of 100,000 computed tokens" in nothing.message


@pytest.mark.parametrize("computed", [None, 0])
def test_without_computed_tokens_there_is_nothing_to_say(computed: int | None) -> None:
    assert finding(computed_tokens=computed) is None


@pytest.mark.parametrize(
    ("notes", "changes", "confidence"),
    [
        ((), {}, "high"),
        ((), {"span_s": 600.0}, "medium"),
        ((), {"span_s": None}, "medium"),
        ((), {"blocks_without_tokens": 5}, "medium"),
        (("kv_events_lost",), {}, "medium"),
        (("kv_events_lost", "kv_events_mixed_publishers"), {}, "low"),
    ],
)
def test_confidence_follows_the_capture(
    notes: tuple[str, ...], changes: dict[str, Any], confidence: str
) -> None:
    found = finding(*notes, **changes)
    assert found is not None
    assert found.confidence == confidence


def test_where_kv_is_loaded_too_it_says_so() -> None:
    queries = reuse_queries() | {"kv_events/restored_summary": query([SUMMARY])}
    manifest = make_manifest()
    manifest.totals.transfers = 3
    record = build_audit(replace(make_input(queries=queries), manifest=manifest))
    found = next(one for one in record.findings if one.id == "restored_tokens")
    assert found.confidence == "low"
    assert "these logs also show KV loaded into HBM" in found.message
