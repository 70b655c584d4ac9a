"""APISIX: variables of its AI plugins in an access log."""

from __future__ import annotations

from kvtrace.ingest.formats.apisix import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "apisix" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "apisix" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_of_a_request() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [100, 100, 100, None]
    assert [row.cached_tokens for row in rows] == [64, None, None, None]
    assert [row.output_tokens for row in rows] == [10, 10, 3, None]
    assert reading.ignored == {"without_llm_call": 1}


def test_outcomes_and_times() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.status for row in rows] == ["ok", "ok", "cancelled", "error"]
    assert [row.ttft_ns for row in rows] == [450 * MS, None, None, None]
    assert [row.e2e_ns for row in rows] == [2_000 * MS, 2_000 * MS, 1_500_500_000, 2_000 * MS]
    assert {row.arrived_at_ns for row in rows} == {START}  # 2.25 s - 2 s, and start_time in ms
    assert reading.note_codes == set()


def test_damaged_lines() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 5)),
        (5, "invalid_json"),
    ]
    assert reading.requests[1].flags == ("cached_above_prompt",)  # 10 + 10 = 20


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "apisix"
    assert sniffed(all_formats(), DAMAGED) == "apisix"
