"""TensorRT-LLM metrics per request: three shapes, a steady clock, blocks turned into tokens."""

from __future__ import annotations

from kvtrace.ingest.contract import TransferRow
from kvtrace.ingest.formats.trtllm_request_metrics import FORMATS
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import DATA, read_bytes, sniffed

TRTLLM = FORMATS[0]
GOOD = (DATA / "trtllm_request_metrics" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "trtllm_request_metrics" / "damaged.jsonl").read_bytes()
MS = 1_000_000


def test_times_are_differences_on_the_steady_clock() -> None:
    reading = read_bytes(TRTLLM, GOOD)
    first, second, third, _split = reading.requests
    assert (first.queue_ns, first.prefill_ns) == (100 * MS, 400 * MS)
    assert (first.ttft_ns, first.ttft_from, first.e2e_ns) == (500 * MS, "arrival", 2_000 * MS)
    # (502.5 - 502.0) s over the 2 tokens after the first
    assert (second.tpot_ns, second.e2e_ns) == (250 * MS, 1_500 * MS)
    # 0.0 is a time that was not set
    assert (third.queue_ns, third.ttft_ns, third.e2e_ns) == (None, None, None)
    assert first.arrived_at_ns == 500_250 * MS
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("monotonic", 1 * MS)


def test_reused_blocks_become_tokens_of_the_default_block_and_this_is_said() -> None:
    reading = read_bytes(TRTLLM, GOOD)
    # 12 x 32; 2 x 32 but at most 64 - 1; nothing looked up; the prefill half's 0
    assert [row.cached_tokens for row in reading.requests] == [384, 63, None, 0]
    assert "block_size_assumed" in reading.note_codes


def test_a_stated_block_size_is_used() -> None:
    reading = read_bytes(TRTLLM, GOOD, block_size_tokens=16)
    assert [row.cached_tokens for row in reading.requests] == [192, 32, None, 0]
    assert "block_size_assumed" not in reading.note_codes


def test_halves_on_two_servers_have_no_common_clock() -> None:
    reading = read_bytes(TRTLLM, GOOD)
    split = reading.requests[3]
    assert (split.request_id, split.ttft_ns, split.e2e_ns) == ("14", 1_000 * MS, None)
    assert "two_steady_clocks" in reading.note_codes


def test_hand_offs_are_measured_moves() -> None:
    moves = [row for row in read_bytes(TRTLLM, GOOD).rows if isinstance(row, TransferRow)]
    assert [
        (move.request_id, move.moved_bytes, move.duration_ns, move.started_at_ns) for move in moves
    ] == [
        ("12", 2_097_152, 125 * MS, 501_125 * MS),
        ("14", 1_024, 250 * MS, None),
    ]
    assert {move.direction for move in moves} == {"hand_off"}


def test_status_and_ids() -> None:
    rows = read_bytes(TRTLLM, GOOD).requests
    assert [row.request_id for row in rows] == ["11", "12", "13", "14"]
    assert [row.status for row in rows] == ["ok", "ok", "cancelled", "ok"]
    assert [row.prompt_tokens for row in rows] == [None, 64, None, None]


def test_damaged_records_are_rejected_and_reversed_times_unknown() -> None:
    reading = read_bytes(TRTLLM, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_json"),
    ]
    (row,) = reading.requests
    assert (row.queue_ns, row.prefill_ns, row.flags) == (None, 2_000 * MS, ("time_order",))


def test_items_may_stand_in_an_array() -> None:
    array = b"[" + b", ".join(GOOD.splitlines()) + b"]"
    found = recognise(array, "sample", formats=all_formats())
    assert found.format is TRTLLM
    assert found.framing == "json"


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "trtllm_request_metrics"
    assert sniffed(all_formats(), DAMAGED) == "trtllm_request_metrics"
