"""Results of sglang bench_serving: bare Infinity, cached tokens by tier, no arrival times."""

from __future__ import annotations

from kvtrace.ingest.formats.sglang_bench import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

BENCH = FORMATS[0]
GOOD = (DATA / "sglang_bench" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "sglang_bench" / "damaged.jsonl").read_bytes()
MS = 1_000_000


def test_bare_infinity_is_read_and_summaries_are_left_out() -> None:
    assert b"Infinity" in GOOD
    reading = read_bytes(BENCH, GOOD)
    assert reading.rejected == []
    assert reading.ignored == {"summary_only": 1}
    assert reading.note_codes == {"client_token_counts", "summary_only"}


def test_cached_tokens_by_tier_where_the_client_asked_for_them() -> None:
    rows = read_bytes(BENCH, GOOD).requests
    assert [row.cached_tokens for row in rows] == [48, 59, None, None]
    assert [row.cached_device_tokens for row in rows] == [48, 9, None, None]
    assert [row.cached_host_tokens for row in rows] == [0, 20, None, None]
    assert [row.cached_remote_tokens for row in rows] == [None, 30, None, None]


def test_times_are_from_the_client_and_failed_requests_have_none() -> None:
    rows = read_bytes(BENCH, GOOD).requests
    assert [row.ttft_ns for row in rows] == [250 * MS, 500 * MS, None, 500 * MS]
    assert [row.e2e_ns for row in rows] == [750 * MS, 1_000 * MS, None, 750 * MS]
    assert [row.tpot_ns for row in rows] == [125 * MS, 250 * MS, None, 250 * MS]
    assert [row.status for row in rows] == ["ok", "ok", "error", "ok"]
    assert all(row.is_benchmark for row in rows)


def test_there_is_no_clock() -> None:
    reading = read_bytes(BENCH, GOOD)
    assert reading.context.clock == "order"
    assert [row.arrived_at_ns for row in reading.requests] == [None] * 4


def test_damaged_runs_are_rejected_whole() -> None:
    reading = read_bytes(BENCH, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (6, "invalid_json"),
    ]
    first = reading.requests[0]
    assert (first.cached_tokens, first.e2e_ns) == (101, None)  # an inter-token latency is unknown
    assert first.flags == ("cached_above_prompt",)


def test_it_is_recognised_and_is_not_that_of_vllm() -> None:
    assert sniffed(all_formats(), GOOD) == "sglang_bench"
    assert sniffed(all_formats(), DAMAGED) == "sglang_bench"
    assert sniffed(all_formats(), GOOD.splitlines()[1][:600]) == "sglang_bench"
