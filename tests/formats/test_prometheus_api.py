"""Results of Prometheus' API: texts for values, gaps, restarts; the step is the window."""

from __future__ import annotations

from kvtrace.ingest.formats.prometheus_api import FORMATS
from kvtrace.ingest.registry import all_formats
from kvtrace.units import NS_PER_S
from tests.formats.reading import DATA, Reading, read_bytes, sniffed

(API,) = FORMATS
FOLDER = DATA / "prometheus_api"
MATRIX = (FOLDER / "matrix.json").read_bytes()
VECTORS = (FOLDER / "vectors.jsonl").read_bytes()
EXPORT = (FOLDER / "export.jsonl").read_bytes()
DAMAGED = (FOLDER / "damaged.jsonl").read_bytes()
START_NS = 1_780_000_000 * NS_PER_S


def hits(reading: Reading) -> list[tuple[float | None, float | None, str | None, int | None]]:
    return [
        (metric.numerator, metric.denominator, metric.window, metric.window_ns)
        for sample in reading.samples
        for metric in sample.metrics
        if metric.metric == "prefix_hit_ratio"
    ]


def test_counters_become_gains_over_the_step_and_restarts_count_from_zero() -> None:
    reading = read_bytes(API, MATRIX)
    assert [(row.observed_at_ns or 0) - START_NS for row in reading.samples] == [
        0,
        30 * NS_PER_S,
        60 * NS_PER_S,
        120 * NS_PER_S,
    ]
    # 3000 - 1000 and 1100 - 100; a restart: 500 and 200; a step was missed: 1500 - 500 over 60 s
    assert hits(reading) == [
        (100.0, 1000.0, "cumulative", None),
        (1000.0, 2000.0, "interval", 30 * NS_PER_S),
        (200.0, 500.0, "interval", 30 * NS_PER_S),
        (500.0, 1000.0, "interval", 60 * NS_PER_S),
    ]
    assert "counters_restarted" in reading.note_codes
    assert (reading.context.clock, reading.context.engine) == ("utc", "vllm")
    assert reading.requests == []


def test_values_that_are_none_are_gaps() -> None:
    reading = read_bytes(API, MATRIX)
    assert reading.metric("kv_usage_ratio") == [0.5, 0.25]  # NaN and +Inf say nothing
    assert reading.metric("running_requests") == [4.0, 4.0]
    assert {"values_left_out", "series_without_name"} <= reading.note_codes
    assert "canary" not in repr(reading.rows)


def test_instant_vectors_and_info_labels() -> None:
    reading = read_bytes(API, VECTORS)
    (sample,) = reading.samples
    assert sample.observed_at_ns == START_NS + NS_PER_S // 2
    assert reading.metric("kv_usage_ratio") == [0.75]
    assert reading.metric("kv_capacity_tokens") == [16_000]
    assert reading.context.engine_facts["block_size"] == 16
    assert reading.ignored == {"query_failed": 1, "no_series": 1, "metric_not_used": 1}


def test_an_export_of_victoriametrics_is_the_same() -> None:
    reading = read_bytes(API, EXPORT)
    assert reading.metric("prompt_tokens") == [10.0, 60.0]
    assert [(row.observed_at_ns or 0) - START_NS for row in reading.samples] == [0, 30 * NS_PER_S]


def test_damage_is_rejected_and_impossible_points_are_left_out() -> None:
    reading = read_bytes(API, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (7, "invalid_json"),
    ]
    assert reading.metric("running_requests") == [4.0]  # the first of two at one instant


def test_it_is_recognised() -> None:
    for data in (MATRIX, VECTORS, EXPORT, DAMAGED, MATRIX[:600]):
        assert sniffed(all_formats(), data) == "prometheus_api"
