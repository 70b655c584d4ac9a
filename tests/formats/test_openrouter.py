"""OpenRouter: native counts, cancelled generations, no latency made up."""

from __future__ import annotations

from kvtrace.ingest.formats.openrouter import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "openrouter" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "openrouter" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_native_counts() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.prompt_tokens for row in rows] == [100] * 5
    assert [row.cached_tokens for row in rows] == [64, None, 64, 64, 0]
    assert [row.output_tokens for row in rows] == [10, 0, 10, 10, 10]
    assert [row.status for row in rows] == ["ok", "cancelled", "error", "ok", "ok"]
    assert rows[2].session_id == "s3"


def test_its_latency_is_not_used() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert {(row.ttft_ns, row.e2e_ns) for row in reading.requests} == {(None, None)}
    assert reading.note_codes == {"latency_unverified"}
    assert {row.arrived_at_ns for row in reading.requests} == {START}
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 1_000)


def test_damaged_answers() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 5)),
        (5, "invalid_json"),
        (7, "invalid_field"),
    ]
    assert [row.request_id for row in reading.requests] == ["d1", "d6"]  # d7 beside it is refused
    assert "entries_refused" in reading.note_codes


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "openrouter"
    assert sniffed(all_formats(), DAMAGED) == "openrouter"
