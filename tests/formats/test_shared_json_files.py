"""The JSON files of the handed excerpts, with the values that their index states."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.contract import TransferRow
from kvtrace.ingest.registry import all_formats, format_named
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import Reading, decoded, read_bytes

pytestmark = pytest.mark.shared
MS = 1_000_000
S = 1_000 * MS


def read_shared(folder: Path, name: str, format_name: str) -> Reading:
    """The file read through the format that it must be taken for."""
    data = decoded(folder / name)
    found = recognise(data, name, formats=all_formats()).format
    assert found is not None
    assert found.name == format_name
    entry = format_named(format_name)
    assert entry is not None
    return read_bytes(entry, data)


def test_dynamo_request_trace(shared_dir: Path) -> None:
    name = "dynamo-request-trace.000000.jsonl.gz"
    reading = read_shared(shared_dir / "log_excerpts", name, "dynamo_request_trace")
    first, second = reading.requests
    assert (first.prompt_tokens, first.output_tokens, first.ttft_ns) == (130, 16, None)
    assert (second.prompt_tokens, second.output_tokens, second.cached_tokens) == (192, 20, 128)
    assert (second.ttft_ns, second.queue_ns) == (55_500_000, 3 * MS)
    assert (second.session_id, second.llm) == ("s-1", "m")
    shared_blocks = [key for key in first.block_keys or [] if key in (second.block_keys or [])]
    assert shared_blocks == [14_879_255_164_371_896_291, 274_632_075_616_497_421]
    assert reading.context.found_block_size_tokens == 64
    assert reading.ignored == {"tool_end": 1}
    assert reading.rejected == []


def test_lmcache_lookup_hashes(shared_dir: Path) -> None:
    name = "lmcache-lookup-hashes.jsonl"
    reading = read_shared(shared_dir / "log_excerpts", name, "lmcache_hashes")
    keys = [row.block_keys or [] for row in reading.requests]
    assert [len(row) for row in keys] == [3, 3, 1]
    assert keys[0][:2] == keys[1][:2]
    assert keys[0][2] != keys[1][2]
    assert [row.prompt_tokens for row in reading.requests] == [1000, 780, None]
    assert reading.context.found_block_size_tokens == 256
    assert reading.context.engine_facts["kv_bytes_per_token"] == 131_072


def test_sglang_request_metrics(shared_dir: Path) -> None:
    name = "sglang-request-metrics-20261120_09.log"
    reading = read_shared(shared_dir / "log_excerpts", name, "sglang_request_metrics")
    rows = reading.requests
    assert len(rows) == 2
    assert sum(row.prompt_tokens or 0 for row in rows) == 1_010
    assert sum(row.cached_tokens or 0 for row in rows) == 960
    assert sum(row.cached_device_tokens or 0 for row in rows) == 960
    assert sum(row.output_tokens or 0 for row in rows) == 9
    assert rows[0].arrived_at_ns == 1_795_165_200_500 * MS
    assert rows[0].ttft_ns == 200 * MS
    assert rows[1].arrived_at_ns is None


def test_sglang_bench_serving(shared_dir: Path) -> None:
    name = "sglang-bench-serving.jsonl"
    rows = read_shared(shared_dir / "log_excerpts", name, "sglang_bench").requests
    assert [row.prompt_tokens for row in rows] == [1024] * 3
    assert [row.cached_tokens for row in rows] == [0, 512, 1023]
    assert sum(row.cached_device_tokens or 0 for row in rows) == 512
    assert sum(row.cached_host_tokens or 0 for row in rows) == 1_023
    assert sum(row.ttft_ns or 0 for row in rows) == 600 * MS  # mean 0.2 s
    assert [row.arrived_at_ns for row in rows] == [None] * 3


def test_sglang_bench_serving_with_a_bare_infinity(shared_dir: Path) -> None:
    name = "sglang_bench_serving.jsonl"
    reading = read_shared(shared_dir / "trace_excerpts", name, "sglang_bench")
    rows = reading.requests
    assert reading.ignored == {"summary_only": 1}
    assert [row.prompt_tokens for row in rows] == [2048, 512]
    assert [row.output_tokens for row in rows] == [120, 30]
    assert [row.ttft_ns for row in rows] == [310 * MS, 900 * MS]
    assert [row.e2e_ns for row in rows] == [2_690 * MS, 1_770 * MS]
    assert [row.status for row in rows] == ["ok", "ok"]


def test_trtllm_iteration_stats(shared_dir: Path) -> None:
    name = "trtllm-iteration-stats.json"
    reading = read_shared(shared_dir / "log_excerpts", name, "trtllm_stats")
    assert len(reading.samples) == 2
    assert reading.metric("prefix_hit_ratio") == [None, 0.25]
    assert reading.context.engine_facts["kv_capacity_tokens"] == 384_000
    assert sum(value or 0 for value in reading.metric("computed_tokens")) == 16_000
    assert reading.samples[0].observed_at_ns == 1_778_574_797_747_028_000  # 12 May, not 5 December


def test_trtllm_request_perf_metrics(shared_dir: Path) -> None:
    name = "trtllm-request-perf-metrics.jsonl"
    reading = read_shared(shared_dir / "log_excerpts", name, "trtllm_request_metrics")
    first, second = reading.requests
    assert (first.queue_ns, first.ttft_ns, first.e2e_ns) == (50 * MS, 400 * MS, 2_400 * MS)
    assert first.cached_tokens == 960
    assert (second.queue_ns, second.ttft_ns, second.e2e_ns) == (MS, 8_500_000, 24 * MS)
    assert second.cached_tokens == 0
    (move,) = (row for row in reading.rows if isinstance(row, TransferRow))
    assert (move.request_id, move.moved_bytes, move.duration_ns) == ("42", 1_048_576, 4 * MS)


def test_otlp_genai_spans(shared_dir: Path) -> None:
    name = "vllm-otel-spans.json"
    (row,) = read_shared(shared_dir / "log_excerpts", name, "otlp_genai").requests
    assert (row.request_id, row.arrived_at_ns) == ("chatcmpl-77aa", 1_763_629_200 * S)
    assert (row.prompt_tokens, row.output_tokens, row.cached_tokens) == (4096, 128, None)
    assert (row.ttft_ns, row.queue_ns) == (800 * MS, 200 * MS)
    assert (row.prefill_ns, row.e2e_ns) == (600 * MS, 3_500 * MS)


def test_vllm_bench_detailed(shared_dir: Path) -> None:
    name = "vllm-0.33-bench-detailed.json"
    rows = read_shared(shared_dir / "log_excerpts", name, "vllm_bench").requests
    assert [row.status for row in rows] == ["ok", "ok", "error"]
    assert [row.ttft_ns for row in rows] == [500 * MS, 1_250 * MS, None]
    assert [row.e2e_ns for row in rows] == [950 * MS, 1_350 * MS, None]
    completed = [row for row in rows if row.status == "ok"]
    assert sum(row.prompt_tokens or 0 for row in completed) == 300


def test_vllm_bench_with_its_relative_starts(shared_dir: Path) -> None:
    name = "vllm_bench_serve_detailed.json"
    rows = read_shared(shared_dir / "trace_excerpts", name, "vllm_bench").requests
    starts = [row.arrived_at_ns or 0 for row in rows]
    assert [start - starts[0] for start in starts] == [0, 100 * MS, 200 * MS]
    assert [row.prompt_tokens for row in rows] == [2048, 512, 700]
    assert [row.output_tokens for row in rows] == [120, 30, 0]
    assert [row.e2e_ns for row in rows] == [2_690 * MS, 1_770 * MS, None]
