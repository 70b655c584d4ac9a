"""Batch output: results, errors, three providers."""

from __future__ import annotations

from kvtrace.ingest.formats.openai_batch import FORMATS
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "openai_batch" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "openai_batch" / "damaged.jsonl").read_bytes()
MS = 1_000_000


def test_tokens_and_outcomes() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.prompt_tokens for row in rows] == [100, 25, None, None, 93, None, None, 40]
    assert [row.cached_tokens for row in rows] == [64, None, None, None, 40, None, None, None]
    assert [row.output_tokens for row in rows] == [10, 4, None, None, 6, None, None, 5]
    assert [row.status for row in rows] == [
        "ok",
        "ok",
        "error",
        "error",
        "ok",
        "cancelled",
        "error",
        "ok",
    ]


def test_ids_join_with_the_engine_where_there_is_a_response() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.request_id for row in rows] == [
        "cmpl-1",
        "cmpl-2",
        "r3",
        "req-4",
        "msg-5",
        "req-6",
        "req-7",
        "g-8",
    ]
    assert {row.request_type for row in rows} == {"batch"}


def test_the_only_time_is_a_second_of_the_service() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert [row.arrived_at_ns for row in reading.requests[:3]] == [
        1_780_000_000_000 * MS,
        1_780_000_001_000 * MS,
        None,
    ]
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 1_000 * MS)
    assert reading.note_codes == {"arrival_from_created"}


def test_damaged_results() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 6)),
        (6, "invalid_json"),
        (7, "invalid_field"),
    ]
    assert [row.request_id for row in reading.requests] == ["cmpl-1"]


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "openai_batch"
    assert sniffed(all_formats(), DAMAGED) == "openai_batch"


# Input files

ASKED = FORMATS[1]
INPUT = (DATA / "openai_batch" / "input.jsonl").read_bytes()
INPUT_DAMAGED = (DATA / "openai_batch" / "input_damaged.jsonl").read_bytes()


def test_what_was_asked() -> None:
    reading = read_bytes(ASKED, INPUT, prompt_hasher=PromptHasher(b"key"))
    rows = reading.requests
    # "<system>\nsecret system prompt\n<user>\nsecret question\n" has 53 bytes; 5 ids;
    # "<system>\nsecret\n<user>\nsecret\n" 30; "<user>\nsecret\n" 14; embeddings of two texts
    assert [row.prompt_tokens for row in rows] == [14, 5, 8, 4, None]
    assert [len(row.block_keys or ()) for row in rows] == [1, 1, 1, 1, 0]
    assert [row.llm for row in rows] == ["tiny-llm", "tiny-llm", "claude", None, "tiny-embedder"]
    assert [row.user for row in rows] == ["u-1", "u-2", "u-3", None, None]
    assert {row.arrived_at_ns for row in rows} == {None}
    assert {"batch_input_only", "prompts_not_read"} <= reading.note_codes
    assert "secret" not in repr(rows)


def test_damaged_input() -> None:
    reading = read_bytes(ASKED, INPUT_DAMAGED, prompt_hasher=PromptHasher(b"key"))
    assert reading.rejected == [(2, "invalid_field"), (3, "invalid_field"), (4, "invalid_json")]
    assert len(reading.requests) == 1


def test_input_and_output_are_told_apart() -> None:
    assert sniffed(all_formats(), INPUT) == "openai_batch_input"
    assert sniffed(all_formats(), INPUT_DAMAGED) == "openai_batch_input"
