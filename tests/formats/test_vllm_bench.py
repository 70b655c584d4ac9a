"""Results of vllm bench serve: parallel arrays, failed requests, several runs a file."""

from __future__ import annotations

from kvtrace.ingest.formats.vllm_bench import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

BENCH = FORMATS[0]
GOOD = (DATA / "vllm_bench" / "good.json").read_bytes()
DAMAGED = (DATA / "vllm_bench" / "damaged.json").read_bytes()
MS = 1_000_000


def test_requests_of_a_run_and_a_failed_one_has_no_times() -> None:
    rows = read_bytes(BENCH, GOOD).requests[:3]
    assert [row.prompt_tokens for row in rows] == [64, 32, 16]
    assert [row.output_tokens for row in rows] == [5, 3, 0]
    assert [row.ttft_ns for row in rows] == [250 * MS, 500 * MS, None]
    assert [row.e2e_ns for row in rows] == [750 * MS, 1_000 * MS, None]
    # (0.75 - 0.25) / 4 and (1.0 - 0.5) / 2
    assert [row.tpot_ns for row in rows] == [125 * MS, 250 * MS, None]
    assert [row.ttft_from for row in rows] == ["client", "client", None]
    assert [row.status for row in rows] == ["ok", "ok", "error"]
    assert all(row.is_benchmark and row.queue_ns is None for row in rows)
    assert {row.llm for row in rows} == {"tiny-llm"}


def test_older_results_have_latency_by_their_tokens_and_no_start() -> None:
    rows = read_bytes(BENCH, GOOD).requests[3:]
    # 0.25 + 4 x 0.125, 0.5 + 2 x 0.25, 0.5 + nothing
    assert [row.e2e_ns for row in rows] == [750 * MS, 1_000 * MS, 500 * MS]
    assert [row.arrived_at_ns for row in rows] == [None] * 3


def test_several_runs_in_one_file_and_one_without_detail() -> None:
    reading = read_bytes(BENCH, GOOD)
    assert len(reading.requests) == 6
    assert reading.ignored == {"summary_only": 1}
    assert reading.note_codes == {"client_token_counts", "several_runs", "summary_only"}


def test_start_times_are_a_clock_of_their_own() -> None:
    reading = read_bytes(BENCH, GOOD)
    assert [row.arrived_at_ns for row in reading.requests[:3]] == [
        7_000_500 * MS,
        7_000_625 * MS,
        7_001_500 * MS,
    ]
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("monotonic", MS)


def test_generated_texts_leave_no_trace() -> None:
    assert "secret" not in repr(read_bytes(BENCH, GOOD).rows)


def test_damaged_runs_are_rejected_whole() -> None:
    reading = read_bytes(BENCH, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (7, "invalid_json"),
    ]
    # of the sixth: a negative, an unknown and an infinite time to first token
    assert [row.ttft_ns for row in reading.requests] == [None] * 3
    assert [row.flags for row in reading.requests] == [("negative_ttft",), (), ()]
    assert [row.e2e_ns for row in reading.requests] == [750 * MS, 1_000 * MS, None]


def test_it_is_recognised_even_by_the_start_of_a_long_one() -> None:
    assert sniffed(all_formats(), GOOD) == "vllm_bench"
    assert sniffed(all_formats(), DAMAGED) == "vllm_bench"
    assert sniffed(all_formats(), GOOD[:700]) == "vllm_bench"


def test_a_run_may_be_larger_than_other_records() -> None:
    assert BENCH.max_record_bytes is not None
    assert BENCH.max_record_bytes >= 400_000_000
