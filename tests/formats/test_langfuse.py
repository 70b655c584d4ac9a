"""Langfuse: generations alone, disjoint and inclusive inputs, units, answers of the API."""

from __future__ import annotations

import dataclasses

from kvtrace.ingest.formats.langfuse import FORMATS
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "langfuse" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "langfuse" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_whichever_way_the_input_is_meant() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    # 36 + 64; 117 holds its cache (117 + 2 = 119); failed; 100 + 50 assumed; old names
    assert [row.prompt_tokens for row in rows] == [100, 117, None, 150, 5, 70]
    assert [row.cached_tokens for row in rows] == [64, 115, None, 50, None, None]
    assert [row.output_tokens for row in rows] == [10, 2, None, 1, 1, 7]
    assert [row.status for row in rows] == ["ok", "ok", "error", "ok", "ok", "ok"]


def test_times_and_ids() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.ttft_ns for row in rows[:2]] == [500 * MS, None]
    assert [row.e2e_ns for row in rows] == [2_000 * MS] * 4 + [250 * MS, 2_000 * MS]
    assert [row.arrived_at_ns for row in rows[:1]] == [START]
    assert [row.session_id for row in rows] == ["s1"] * 4 + ["s7", "s1"]
    assert reading.context.clock == "naive"  # one row has no zone
    assert reading.note_codes == {"naive_clock", "mixed_zones", "cache_semantics_assumed"}


def test_the_end_as_first_token_is_none() -> None:
    first = GOOD.split(b"\n")[0].replace(b"26:40.750", b"26:42.250")
    (row,) = read_bytes(ENTRY, first).requests
    assert (row.ttft_ns, row.e2e_ns) == (None, 2_000 * MS)


def test_other_observations_and_other_units_are_left_out() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert reading.ignored == {"observation_span": 1, "observation_other": 1}
    assert reading.rejected == [(9, "invalid_field")]  # CHARACTERS


def test_an_answer_of_the_api_is_one_record_with_many_rows() -> None:
    data = (DATA / "langfuse" / "document.json").read_bytes()
    found = recognise(data, "a.json", formats=all_formats())
    assert (found.format, found.framing) == (ENTRY, "json")
    reading = read_bytes(dataclasses.replace(ENTRY, framing="json"), data)
    assert [row.request_id for row in reading.requests] == ["o1", "o3", "o4", "o5"]
    assert reading.context.tally.used == 1
    notes = {note.code: note.message for note in reading.context.notes}
    assert notes["entries_left_out"].endswith("observation_other (1), observation_span (1).")
    assert notes["entries_refused"].endswith("`usage.unit` is not TOKENS (1).")


def test_a_long_answer_is_told_by_its_first_entries() -> None:
    data = (DATA / "langfuse" / "document.json").read_bytes()
    cut = data[: len(data) // 2]
    assert recognise(cut, "a.json", formats=all_formats()).format is ENTRY


def test_damaged_observations() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 6)),
        (6, "invalid_json"),
    ]
    assert reading.requests[1].flags == ("time_order",)


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "langfuse"
    assert sniffed(all_formats(), DAMAGED) == "langfuse"


def test_characters_are_refused_beside_details_too() -> None:
    line = (
        b'{"id": "o-1", "type": "GENERATION", "traceId": "t", "level": "DEFAULT", '
        b'"startTime": "2026-05-01T00:00:00Z", "usageDetails": {"input": 4000, "output": 200}, '
        b'"usage": {"input": 4000, "output": 200, "unit": "CHARACTERS"}}\n'
    )
    reading = read_bytes(FORMATS[0], line)
    assert reading.requests == []
    assert [reason for _line, reason in reading.rejected] == ["invalid_field"]
