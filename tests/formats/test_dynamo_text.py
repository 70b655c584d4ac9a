"""Dynamo logs: tiers per request from KVBM, completions, and a router that only estimates."""

from __future__ import annotations

from datetime import UTC, datetime

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.dynamo_text import FORMATS
from tests.formats.reading import DATA, confidence, read_bytes

DYNAMO = FORMATS[0]
GOOD = (DATA / "dynamo_text" / "good.log").read_bytes()
MALFORMED = (DATA / "dynamo_text" / "malformed.log").read_bytes()
MS = 1_000_000


def tiers(row: RequestRow) -> tuple[int | None, ...]:
    return (
        row.prompt_tokens,
        row.cached_tokens,
        row.cached_device_tokens,
        row.cached_host_tokens,
        row.cached_disk_tokens,
        row.computed_tokens,
    )


def arrival(row: RequestRow) -> str:
    return datetime.fromtimestamp((row.arrived_at_ns or 0) / 1e9, UTC).isoformat()


def test_both_generations_of_kvbm_split_the_tiers() -> None:
    first, second, *_ = read_bytes(DYNAMO, GOOD).requests
    # 512 + 256 + 64 = 832 of 1 000; 1 000 - 832 = 168 prefilled
    assert tiers(first) == (1000, 832, 512, 256, 64, 168)
    assert first.flags == ("dated_by_end",)
    assert tiers(second) == (None, 48, 32, 0, 16, None)
    assert [row.request_id for row in (first, second)] == ["chatcmpl-k1", "chatcmpl-k2"]


def test_completion_has_lengths_and_times_and_no_cached_tokens() -> None:
    row = read_bytes(DYNAMO, GOOD).requests[2]
    assert (row.request_id, row.llm, row.status) == ("r-3", "m", "ok")
    assert tiers(row) == (640, None, None, None, None, None)
    assert (row.output_tokens, row.ttft_ns, row.ttft_from) == (21, 120_500_000, "arrival")
    assert (row.tpot_ns, row.e2e_ns) == (10_250_000, 325_500_000)
    assert arrival(row) == "2026-04-01T10:00:02.674500+00:00"  # 3 s less 325.5 ms
    assert row.flags == ()


def test_kvbm_and_completion_of_one_request_are_one_row() -> None:
    row = read_bytes(DYNAMO, GOOD).requests[3]
    assert (row.request_id, row.status, row.line) == ("r-4", "cancelled", 7)
    assert tiers(row) == (300, 192, 128, 64, 0, 108)
    assert (row.output_tokens, row.e2e_ns) == (2, 100 * MS)
    assert arrival(row) == "2026-04-01T10:00:04+00:00"


def test_engine_ids_are_joined_through_the_id_map() -> None:
    reading = read_bytes(DYNAMO, GOOD)
    row = reading.requests[4]
    assert len(reading.requests) == 5
    assert (row.request_id, row.prompt_tokens, row.cached_device_tokens) == ("0a0b", 128, 96)
    assert row.ttft_ns == 8_500_000


def test_router_estimates_are_samples_and_never_hits() -> None:
    reading = read_bytes(DYNAMO, GOOD)
    assert reading.metric("router_overlap_blocks") == [5.0, 7.0]
    assert [sample.engine for sample in reading.samples] == [
        "worker_11 dp_rank=1",
        "worker_12 dp_rank=0",
    ]
    assert reading.ignored == {"router_estimate": 1, "id_map": 1, "completion_without_counts": 1}
    assert reading.note_codes == {"router_estimates"}
    assert reading.context.evidence_grade == "B"
    router_only = b"\n".join(GOOD.splitlines()[2:5])
    assert read_bytes(DYNAMO, router_only + b"\n").context.evidence_grade == "L"


def test_damaged_lines_are_never_half_read() -> None:
    reading = read_bytes(DYNAMO, MALFORMED)
    assert reading.rows == []
    assert reading.rejected == [(line, "damaged_line") for line in range(1, 10)]


def test_an_id_used_again_is_another_request() -> None:
    line = GOOD.splitlines()[0] + b"\n"
    assert len(read_bytes(DYNAMO, line + line).requests) == 2


def test_negative_time_is_unknown_and_flagged() -> None:
    row = read_bytes(DYNAMO, GOOD.replace(b'"120.5"', b"-1")).requests[2]
    assert (row.ttft_ns, row.ttft_from) == (None, None)
    assert row.flags == ("negative_ttft_ms",)


def test_counts_that_do_not_add_up_are_flagged() -> None:
    row = read_bytes(DYNAMO, GOOD.replace(b"isl: 1000", b"isl: 1001")).requests[0]
    assert row.flags == ("dated_by_end", "total_mismatch")


def test_text_of_other_programs_is_not_dynamo() -> None:
    assert confidence(DYNAMO, GOOD) > 0.9
    other = b'{"message": "request complete", "time": "2026-04-01T10:00:03Z"}\n'
    assert confidence(DYNAMO, other) == 0.0
