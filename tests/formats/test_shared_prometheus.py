"""The handed scrapes, with the values that were handed with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.prometheus import FORMATS
from tests.formats.reading import Reading, decoded, read_bytes, sniffed

pytestmark = pytest.mark.shared


def _read(path: Path) -> Reading:
    data = decoded(path)
    assert sniffed(FORMATS, data) == "prometheus"
    return read_bytes(FORMATS[0], data)


def _metrics(read: Reading, row: int) -> dict[str, Metric]:
    return {metric.metric: metric for metric in read.samples[row].metrics}


def test_names_of_vllm_0_8(shared_dir: Path) -> None:
    read = _read(shared_dir / "log_excerpts" / "vllm-0.8.5-metrics.prom")
    only = _metrics(read, 0)
    assert only["prefix_hit_ratio"].value == 0.25
    assert only["prefix_hit_ratio"].hit_unit == "blocks"
    assert only["kv_usage_ratio"].value == 0.41
    assert only["ttft_s"].value == pytest.approx(0.24)


def test_three_scrapes_with_a_restart(shared_dir: Path) -> None:
    read = _read(shared_dir / "log_excerpts" / "vllm-0.33-metrics-two-scrapes.prom")
    first, second, third = (_metrics(read, row) for row in range(3))
    local = second["prefix_hit_ratio"]
    assert (local.numerator, local.denominator, local.value) == (30_000, 60_000, 0.5)
    external = second["external_prefix_hit_ratio"]
    assert (external.numerator, external.denominator, external.value) == (15_000, 30_000, 0.5)
    assert second["prompt_hit_ratio"].value == 0.75
    assert third["prefix_hit_ratio"].numerator == 100
    assert third["prefix_hit_ratio"].denominator == 500
    assert first["kv_block_idle_before_evict_s"].value == 30
    assert first["cached_host_tokens"].value == 12_000
    assert first["cached_disk_tokens"].value == 3_000
    assert read.requests == []


def test_snapshot(shared_dir: Path) -> None:
    read = _read(shared_dir / "trace_excerpts" / "prom_vllm_snapshot.prom")
    only = _metrics(read, 0)
    assert only["prompt_tokens"].value == 1_048_576
    assert only["output_tokens"].value == 65_536
    assert only["prefix_hit_ratio"].numerator == 393_216
    assert only["prefix_hit_ratio"].value == 0.375
    assert only["external_prefix_hit_ratio"].denominator == 655_360
    assert only["prompt_hit_ratio"].value == 0.5
    assert only["kv_usage_ratio"].value == 0.73
    assert only["preemptions"].value == 3
    assert only["ttft_s"].value == pytest.approx(0.275)
    assert only["ttft_s"].denominator == 100
    # P50 interpolates to 0.22: at most 0.25 is what the buckets prove
    assert [only[f"ttft_p{q}_le_s"].value for q in (50, 90, 99)] == [0.25, 0.5, 1.0]
    assert read.context.engine_facts["kv_capacity_tokens"] == 1_048_576
    assert read.ignored["metric_not_used"] == 1
