"""SGLang request metrics files: cached tokens by tier, times, aborts, and waits for storage."""

from __future__ import annotations

import pytest

from kvtrace.ingest.contract import TransferRow
from kvtrace.ingest.families.hicache import storage_tier
from kvtrace.ingest.formats.sglang_request_metrics import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

SGLANG = FORMATS[0]
GOOD = (DATA / "sglang_request_metrics" / "good.log").read_bytes()
DAMAGED = (DATA / "sglang_request_metrics" / "damaged.log").read_bytes()
MS = 1_000_000


def test_cached_tokens_are_split_by_tier_and_the_backend_says_which_storage() -> None:
    reading = read_bytes(SGLANG, GOOD)
    assert [
        (
            row.cached_tokens,
            row.cached_device_tokens,
            row.cached_host_tokens,
            row.cached_disk_tokens,
            row.cached_remote_tokens,
        )
        for row in reading.requests
    ] == [
        (3600, 1000, 600, None, 2000),
        (0, None, None, None, None),
        (None, None, None, None, None),
        (0, None, None, None, None),
        (480, 0, 0, 480, None),
        (480, 0, 0, None, 480),
    ]
    assert reading.note_codes == {"storage_backend_unknown"}


@pytest.mark.parametrize(
    ("backend", "tier"),
    [
        ("file", "disk"),
        ("HiCacheFile", "disk"),
        ("NFS", "disk"),
        ("MooncakeStore", "remote"),
        ("hf3fs", "remote"),
        ("AibrixKVCacheStorage", "remote"),
        ("dynamic", None),
        (None, None),
    ],
)
def test_storage_backends(backend: str | None, tier: str | None) -> None:
    assert storage_tier(backend) == tier


def test_times_from_arrival_and_a_negative_queue_is_unknown() -> None:
    first, second, *_ = read_bytes(SGLANG, GOOD).requests
    assert first.arrived_at_ns == 1_780_000_000_125 * MS
    assert (first.ttft_ns, first.queue_ns, first.e2e_ns) == (250 * MS, 12_500_000, 1_500 * MS)
    # (1.5 s - 0.25 s) over the 10 tokens after the first
    assert (first.tpot_ns, first.ttft_from) == (125 * MS, "arrival")
    # no first_token_latency: prefill_finished_ts - request_received_ts
    assert (second.ttft_ns, second.queue_ns) == (62_500_000, None)
    assert (second.tpot_ns, second.flags) == (None, ("negative_queue",))


def test_aborts_are_no_empty_prompts() -> None:
    reading = read_bytes(SGLANG, GOOD)
    assert [row.status for row in reading.requests] == [
        "ok",
        "ok",
        "cancelled",
        "error",
        "ok",
        "ok",
    ]
    assert [row.prompt_tokens for row in reading.requests] == [4000, 12, None, 90, 500, 500]
    assert reading.requests[4].flags == ("retracted",)


def test_only_ids_are_taken_from_the_parameters() -> None:
    rows = read_bytes(SGLANG, GOOD).requests
    assert [row.request_id for row in rows] == ["g-1", "g-2", "g-3", "g-4", "g-5", "g-6"]
    assert (rows[0].session_id, rows[0].adapter) == ("chat-5", "adapter-x")
    assert "secret" not in repr(rows)


def test_waits_for_storage_are_measured_moves() -> None:
    moves = [row for row in read_bytes(SGLANG, GOOD).rows if isinstance(row, TransferRow)]
    assert [(move.path, move.moved_tokens, move.duration_ns) for move in moves] == [
        ("remote>host", 2000, 80 * MS),
        ("host>device", 2600, 20 * MS),
    ]
    assert {(move.request_id, move.direction, move.moved_bytes) for move in moves} == {
        ("g-1", "load", None)
    }


def test_clock_is_utc_where_a_record_has_its_arrival_else_order() -> None:
    context = read_bytes(SGLANG, GOOD).context
    assert (context.clock, context.clock_resolution_ns) == ("utc", 100_000)
    assert read_bytes(SGLANG, DAMAGED).context.clock == "order"


def test_damaged_records_are_rejected_and_odd_ones_flagged() -> None:
    reading = read_bytes(SGLANG, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_json"),
        (3, "invalid_json"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
    ]
    first, last = reading.requests
    assert (first.request_id, first.e2e_ns, first.flags) == ("d-1", None, ("cached_above_prompt",))
    assert (last.request_id, last.tpot_ns) == ("d-8", None)
    assert last.flags == ("tiers_above_cached", "time_order")


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "sglang_request_metrics"
    assert sniffed(all_formats(), DAMAGED) == "sglang_request_metrics"
