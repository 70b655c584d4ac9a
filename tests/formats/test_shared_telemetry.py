"""Spans, Prometheus API results and benchmark files of the handed excerpts, with their values."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.registry import all_formats, format_named
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import Reading, decoded, read_bytes

pytestmark = pytest.mark.shared
_COLUMNS = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "status")
_IDS = ("session_id", "turn")
_TIMES = ("queue", "ttft", "e2e")
REQUEST_FILES = {
    "otlp_vllm_and_genai.jsonl": "otlp_genai",
    "jaeger_vllm.json": "jaeger",
    "aiperf_profile_export.jsonl": "aiperf",
    "genai_perf_profile_export.json": "genai_perf",
    "guidellm_benchmarks.json": "guidellm",
    "inference_perf_per_request_lifecycle_metrics.json": "inference_perf",
    "llmperf_individual_responses.json": "llmperf",
    "sglang_bench_serving.jsonl": "sglang_bench",
    "vllm_bench_serve_detailed.json": "vllm_bench",
}


def read_shared(shared_dir: Path, name: str, format_name: str) -> Reading:
    """The file read through the format that it must be taken for, among all formats."""
    data = decoded(shared_dir / "trace_excerpts" / name)
    found = recognise(data, name, formats=all_formats()).format
    assert found is not None
    assert found.name == format_name
    entry = format_named(format_name)
    assert entry is not None
    return read_bytes(entry, data)


def expected(shared_dir: Path, name: str) -> dict[str, object]:
    """What the index says of a file."""
    text = (shared_dir / "trace_excerpts" / "expected.json").read_text()
    found: dict[str, object] = json.loads(text, parse_float=Decimal)[name]
    return found


def ns_of(seconds: object) -> int | None:
    """Nanoseconds of an expected number of seconds."""
    return None if seconds is None else int(Decimal(str(seconds)) * 10**9)


def listed(value: object) -> list[object]:
    """An expected list of values."""
    assert isinstance(value, list)
    return value


def starts_ns(rows: list[RequestRow]) -> list[int]:
    """Arrivals as distances from the first."""
    first = rows[0].arrived_at_ns or 0
    return [(row.arrived_at_ns or 0) - first for row in rows]


@pytest.mark.parametrize(("name", "format_name"), REQUEST_FILES.items())
def test_requests_have_the_values_of_the_index(
    shared_dir: Path, name: str, format_name: str
) -> None:
    want = expected(shared_dir, name)
    reading = read_shared(shared_dir, name, format_name)
    rows = reading.requests
    for column in (*_COLUMNS, *_IDS):
        if column in want:
            assert [getattr(row, column) for row in rows] == listed(want[column]), column
    for stage in _TIMES:
        if f"{stage}_s" in want:
            times = [ns_of(seconds) for seconds in listed(want[f"{stage}_s"])]
            assert [getattr(row, f"{stage}_ns") for row in rows] == times, stage
    if "first_ts_us" in want:
        assert rows[0].arrived_at_ns == Decimal(str(want["first_ts_us"])) * 1000
    if "ts_rel_s" in want:
        assert starts_ns(rows) == [ns_of(seconds) for seconds in listed(want["ts_rel_s"])]
    assert len(rows) == len(listed(want["prompt_tokens"]))
    assert reading.rejected == []
    entry = format_named(format_name)
    assert entry is not None
    assert all(row.is_benchmark == entry.is_benchmark for row in rows)


def test_gains_of_a_range_query_add_up_to_the_index(shared_dir: Path) -> None:
    name = "prom_query_range_vllm.json"
    want = expected(shared_dir, name)
    reading = read_shared(shared_dir, name, "prometheus_api")
    gains = [
        metric
        for sample in reading.samples
        for metric in sample.metrics
        if metric.metric == "prefix_hit_ratio" and metric.window == "interval"
    ]
    queries = sum(metric.denominator or 0 for metric in gains)
    hits = sum(metric.numerator or 0 for metric in gains)
    assert (queries, hits) == (want["increase_queries"], want["increase_hits"])
    assert hits / queries == pytest.approx(float(str(want["hit_rate"])))
    assert min(metric.window_ns or 0 for metric in gains) == ns_of(want["step_s"])
    assert reading.requests == []
    assert "counters_restarted" in reading.note_codes
