"""vLLM timing files: two clock domains, exact differences, unset stamps unknown."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from kvtrace.ingest.formats.vllm_timing import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, decoded, read_bytes, sniffed

TIMING, SERIES = FORMATS
GOOD = (DATA / "vllm_timing" / "good.jsonl").read_bytes()
MALFORMED = (DATA / "vllm_timing" / "malformed.jsonl").read_bytes()
GOOD_SERIES = (DATA / "vllm_timing" / "good_series.csv").read_bytes()
MALFORMED_SERIES = (DATA / "vllm_timing" / "malformed_series.csv").read_bytes()


def test_differences_are_exact_to_the_nanosecond() -> None:
    row = read_bytes(TIMING, GOOD).requests[0]
    assert row.queue_ns == 60_499_999_999  # 160.5 − 100.000000001
    assert row.prefill_ns == 220_000_003
    assert row.ttft_ns == 60_720_000_002
    assert row.ttft_from == "arrival"
    assert row.tpot_ns == 100_000_000  # 0.4 s over 4 tokens
    assert row.e2e_ns == 61_120_000_002


def test_arrival_does_not_go_through_a_float() -> None:
    reading = read_bytes(TIMING, GOOD)
    # as a float64 the digits would be …082740307
    assert reading.requests[0].arrived_at_ns == 1_787_267_980_082_740_300
    assert reading.context.clock == "utc"
    assert "ttft_from_enqueue" in reading.note_codes


def test_without_enqueue_ttft_starts_at_the_schedule() -> None:
    row = read_bytes(TIMING, GOOD).requests[1]
    assert row.queue_ns is None
    assert row.e2e_ns is None
    assert (row.ttft_ns, row.ttft_from) == (250_000_000, "scheduled")
    assert row.tpot_ns is None  # one token has no next one
    assert row.status == "ok"


def test_unset_stamps_are_unknown_and_the_request_open() -> None:
    row = read_bytes(TIMING, GOOD).requests[2]
    assert (row.queue_ns, row.prefill_ns, row.ttft_ns, row.ttft_from) == (None, None, None, None)
    assert row.status == "open"


def test_only_the_harness_requests_are_benchmark_traffic() -> None:
    assert [row.is_benchmark for row in read_bytes(TIMING, GOOD).requests] == [True, False, False]


def test_stamps_in_the_wrong_order_are_unknown_and_flagged() -> None:
    row = read_bytes(TIMING, MALFORMED).requests[0]
    assert row.queue_ns is None
    assert row.prefill_ns == 2_000_000_000
    assert row.flags == ("time_order",)


def test_bad_rows_are_rejected_with_their_line() -> None:
    assert read_bytes(TIMING, MALFORMED).rejected == [
        (2, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_json"),
    ]


def test_a_missing_field_is_unknown_and_not_a_lost_row() -> None:
    row = read_bytes(TIMING, MALFORMED).requests[1]  # line 3 has no output_toks
    assert (row.prompt_tokens, row.output_tokens) == (10, None)
    bare = b'{"input_toks": 9, "queued_ts": 1.0, "scheduled_ts": 1.5, "first_token_ts": 2.0}\n'
    (only,) = read_bytes(TIMING, bare).requests
    assert (only.request_id, only.output_tokens, only.queue_ns) == (None, None, 500_000_000)


def test_series_become_samples_with_units() -> None:
    reading = read_bytes(SERIES, GOOD_SERIES)
    first, second = reading.samples
    assert {m.metric: (m.value, m.unit) for m in first.metrics} == {
        "prompt_tokens_per_s": (3392.0, "tokens_per_s"),
        "generation_tokens_per_s": (2.0, "tokens_per_s"),
        "running_requests": (5.0, "requests"),
        "waiting_requests": (2.0, "requests"),
        "kv_usage_ratio": (0.1322, "ratio"),
    }
    assert first.observed_at_ns == 1_000_000_000
    assert "kv_usage_ratio" not in {m.metric for m in second.metrics}  # empty cell
    assert reading.context.clock == "relative"


def test_bad_series_rows_are_rejected() -> None:
    reading = read_bytes(SERIES, MALFORMED_SERIES)
    assert reading.rejected == [
        (3, "negative_number"),
        (4, "invalid_number"),
        (5, "wrong_cell_count"),
    ]
    assert len(reading.samples) == 1


def test_both_are_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "vllm_timing"
    assert sniffed(all_formats(), GOOD_SERIES) == "vllm_timeseries"


@pytest.mark.shared
def test_rtx4090_run_is_queue_and_not_prefill(shared_dir: Path) -> None:
    path = shared_dir / "traces" / "vllm_requests_rtx4090_llama31_8b.jsonl.gz"
    reading = read_bytes(TIMING, decoded(path))
    rows = reading.requests
    assert len(rows) == 300
    assert reading.rejected == []
    assert all(row.status == "ok" and not row.flags for row in rows)
    queue = statistics.median(row.queue_ns or 0 for row in rows)
    prefill = statistics.median(row.prefill_ns or 0 for row in rows)
    assert queue == pytest.approx(60e9, rel=0.05)
    assert prefill == pytest.approx(0.22e9, rel=0.05)
    for row in rows:
        assert row.ttft_ns == (row.queue_ns or 0) + (row.prefill_ns or 0)


@pytest.mark.shared
def test_rtxpro6000_run_is_whole(shared_dir: Path) -> None:
    path = shared_dir / "traces" / "vllm_requests_rtxpro6000_llama31_8b.jsonl.gz"
    reading = read_bytes(TIMING, decoded(path))
    assert len(reading.requests) == 300
    assert reading.rejected == []


@pytest.mark.shared
@pytest.mark.parametrize(("gpu", "rows"), [("rtx4090", 184), ("rtxpro6000", 67)])
def test_series_of_the_runs(shared_dir: Path, gpu: str, rows: int) -> None:
    path = shared_dir / "traces" / f"vllm_timeseries_{gpu}_llama31_8b.csv.gz"
    reading = read_bytes(SERIES, decoded(path))
    assert len(reading.samples) == rows
    assert reading.rejected == []
    assert all(0 <= (value or 0) <= 1 for value in reading.metric("kv_usage_ratio"))
