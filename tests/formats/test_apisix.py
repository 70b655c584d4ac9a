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
    assert [row.prompt_tokens for row in rows] == [100, 100, 100, None, 100, 100, 100]
    assert [row.cached_tokens for row in rows] == [64, None, None, None, 64, 64, 60]
    assert [row.output_tokens for row in rows] == [10, 10, 3, None, 10, 10, 10]
    assert reading.ignored == {"without_llm_call": 1}
    assert reading.note_codes == {"cache_semantics_assumed"}  # the last row has no total


def test_outcomes_and_times() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.status for row in rows] == ["ok", "ok", "cancelled", "error", "ok", "ok", "ok"]
    assert [row.e2e_ns for row in rows[:4]] == [2_000 * MS, 2_000 * MS, 1_500_500_000, 2_000 * MS]
    assert {row.arrived_at_ns for row in rows} == {START}  # 2.25 s - 2 s, and start_time in ms


def test_first_token_is_known_of_streams_only() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    # ai_chat writes its whole time as that of the first token
    assert [row.ttft_ns for row in rows] == [
        450 * MS,
        None,
        None,
        None,
        None,
        450 * MS,
        450 * MS,
    ]


def test_entry_of_a_logger_plugin() -> None:
    row = read_bytes(ENTRY, GOOD).requests[5]
    assert (row.request_type, row.llm, row.tenant) == ("messages", "tiny-llm", "con-1")
    assert (row.arrived_at_ns, row.e2e_ns) == (START, 1_500 * MS)


def test_no_text_or_header_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_damaged_lines() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 5)),
        (5, "invalid_json"),
    ]
    # 64 cached of 10, and a total of 20: one of them is wrong
    assert reading.requests[1].flags == ("usage_contradiction", "total_mismatch")


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "apisix"
    assert sniffed(all_formats(), DAMAGED) == "apisix"
