"""Responses of all providers: inclusive prompts, streams counted once, times."""

from __future__ import annotations

import dataclasses
import json

from kvtrace.ingest.formats.provider_usage import FORMATS
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "provider_usage" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "provider_usage" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_of_every_provider() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    # Anthropic 3 + 50 + 40; Bedrock 10; Gemini 40; a chunk 9; failed; 500 + 100 assumed apart
    assert [row.prompt_tokens for row in rows] == [100, 25, 200, 93, 10, 40, 9, None, 600]
    assert [row.cached_tokens for row in rows] == [64, None, 128, 40, None, 32, None, None, 100]
    assert [row.cache_write_tokens for row in rows] == [None] * 3 + [50] + [None] * 5
    assert [row.output_tokens for row in rows] == [10, 4, 7, 6, 2, 8, 2, None, 1]  # Gemini 5 + 3
    assert [row.status for row in rows] == ["ok"] * 7 + ["error", "ok"]
    assert "cache_semantics_assumed" in reading.note_codes


def test_a_stream_is_one_request() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert [row.line for row in reading.requests if row.request_id == "cmpl-7"] == [8]
    assert reading.ignored == {"chunk_before_the_last": 2, "without_usage": 1}


def test_times() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert rows[0].arrived_at_ns == START
    assert (rows[0].ttft_ns, rows[0].e2e_ns) == (450 * MS, 1_500_500_000)
    assert rows[3].arrived_at_ns is None
    assert rows[4].e2e_ns == 900 * MS  # metrics.latencyMs of Bedrock
    assert reading.context.clock == "utc"
    assert "arrival_from_created" in reading.note_codes


def test_ids() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.request_id for row in rows[:3]] == [None, "cmpl-2", "resp-3"]
    assert (rows[0].session_id, rows[2].parent_id, rows[5].llm) == ("s1", "resp-2", "gem")


def test_damaged_lines() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 6)),
        (6, "invalid_json"),
    ]
    assert [row.flags for row in reading.requests] == [
        (),
        ("time_not_an_epoch",),
        ("negative_latency",),
        (),
    ]
    assert reading.requests[3].arrived_at_ns is None  # NaN


def test_units_of_time_may_differ_and_are_warned_of() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.requests[0].arrived_at_ns == reading.requests[2].arrived_at_ns  # s and ms
    (note,) = (note for note in reading.context.notes if note.code == "mixed_epoch_units")
    assert (note.severity, "1 in seconds, 1 in milliseconds" in note.message) == ("warning", True)


def test_one_response_over_many_lines_is_read() -> None:
    spread = json.dumps(json.loads(GOOD.split(b"\n")[0]), indent=2).encode()
    found = recognise(spread, "a.json", formats=all_formats())
    assert found.format is ENTRY
    assert found.framing == "json"
    reading = read_bytes(dataclasses.replace(ENTRY, framing="json"), spread)
    assert [row.prompt_tokens for row in reading.requests] == [100]


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "provider_usage"
    assert sniffed(all_formats(), DAMAGED) == "provider_usage"
