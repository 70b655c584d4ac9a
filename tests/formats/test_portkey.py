"""Portkey: units of prompt and response, no cached tokens."""

from __future__ import annotations

from kvtrace.ingest.formats.portkey import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "portkey" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "portkey" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_and_outcomes() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [100, 100, None, 100, 100, 100, 100]
    assert [row.output_tokens for row in rows] == [10, 10, None, 10, None, 10, 10]
    assert [row.cached_tokens for row in rows] == [None] * 7
    assert [row.status for row in rows] == [
        "ok",
        "gateway_cache_hit",
        "error",
        "error",
        "cancelled",
        "error",
        "ok",
    ]
    assert [row.flags for row in rows[5:]] == [(), ("retried",)]
    assert reading.context.evidence_grade == "L"


def test_times_and_ids() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert {row.arrived_at_ns for row in rows} == {START}
    assert [row.e2e_ns for row in rows[:2]] == [1_500 * MS, 4 * MS]
    assert [(row.session_id, row.user) for row in rows[:2]] == [("s1", "u1"), (None, None)]
    assert rows[3].user == "u4"  # metadata as text
    assert reading.context.clock == "utc"


def test_damaged_entries() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 6)),
        (6, "invalid_json"),
    ]
    assert reading.requests[1].flags == ("total_mismatch",)


def test_the_total_tells_the_prompt_where_its_units_are_missing() -> None:
    line = GOOD.splitlines()[0].replace(b'"req_units": 100', b'"req_units": null')
    assert [row.prompt_tokens for row in read_bytes(ENTRY, line).requests] == [100]


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "portkey"
    assert sniffed(all_formats(), DAMAGED) == "portkey"
