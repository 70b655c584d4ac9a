"""Dynamo request trace: lengths, times and rolling block hashes of rows that end a request."""

from __future__ import annotations

from kvtrace.ingest.formats.dynamo_request_trace import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

DYNAMO = FORMATS[0]
GOOD = (DATA / "dynamo_request_trace" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "dynamo_request_trace" / "damaged.jsonl").read_bytes()
MS = 1_000_000


def test_hashes_are_whole_numbers_and_count_the_partial_last_block() -> None:
    reading = read_bytes(DYNAMO, GOOD)
    # 130 tokens are 2 blocks of 64 and 2 tokens more: 3 hashes, the first two beyond 2^63.
    assert reading.requests[0].block_keys == [2**64 - 1, 2**63 + 1, 7]
    assert reading.requests[1].block_keys == [2**64 - 1, 2**63 + 1, 41, 42]
    assert reading.requests[2].block_keys is None
    context = reading.context
    assert (context.found_block_size_tokens, context.partial_tail) == (64, "counted")
    assert (context.block_ids, context.block_scope) == ("chained", "global")


def test_lengths_come_from_the_request_or_from_the_replay_part() -> None:
    rows = read_bytes(DYNAMO, GOOD).requests
    assert [row.prompt_tokens for row in rows] == [130, 200, 64]
    assert [row.cached_tokens for row in rows] == [None, 128, 0]
    assert [row.output_tokens for row in rows] == [5, 21, 0]


def test_times_are_exact_and_those_not_written_unknown() -> None:
    first, second, third = read_bytes(DYNAMO, GOOD).requests
    assert first.arrived_at_ns == 1_780_000_000_000 * MS
    assert (first.ttft_ns, first.ttft_from, first.e2e_ns) == (None, None, None)
    assert (second.queue_ns, second.prefill_ns) == (4_500_000, 30_250_000)
    assert (second.ttft_ns, second.ttft_from) == (34_750_000, "arrival")
    assert (second.tpot_ns, second.e2e_ns) == (98_262_500, 2_000 * MS)
    assert third.e2e_ns == 100 * MS


def test_sessions_status_and_clock() -> None:
    reading = read_bytes(DYNAMO, GOOD)
    assert [row.session_id for row in reading.requests] == [None, "sess-a", "prog-b"]
    assert [row.request_id for row in reading.requests] == ["aa-1", "aa-2", "aa-3"]
    assert [row.status for row in reading.requests] == ["ok", "ok", "cancelled"]
    assert [row.llm for row in reading.requests] == [None, "tiny-llm", "tiny-llm"]
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", MS)
    assert reading.context.engine == "dynamo"


def test_other_events_are_ignored_by_their_kind_and_the_estimate_is_no_transfer() -> None:
    reading = read_bytes(DYNAMO, GOOD)
    assert reading.ignored == {"tool_end": 1, "request_payload": 1}
    assert len(reading.rows) == len(reading.requests) == 3
    assert reading.note_codes == {"rows_may_be_missing", "ttft_before_hand_off"}


def test_damaged_and_impossible_records_are_rejected() -> None:
    reading = read_bytes(DYNAMO, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_json"),
        (3, "invalid_json"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_field"),
        (8, "invalid_field"),
    ]
    assert reading.ignored == {"other_event": 1}
    kept = reading.requests[1]
    assert (kept.request_id, kept.queue_ns, kept.ttft_ns, kept.block_keys) == (
        "bb-9",
        None,
        None,
        None,
    )
    assert kept.flags == (
        "other_block_size",
        "total_mismatch",
        "negative_queue",
        "cached_above_prompt",
    )
    assert "other_block_size" in reading.note_codes


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "dynamo_request_trace"
    assert sniffed(all_formats(), DAMAGED) == "dynamo_request_trace"
