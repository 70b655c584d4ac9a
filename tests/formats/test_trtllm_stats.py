"""TensorRT-LLM iteration statistics: counters differenced, nothing looked up is no hit rate."""

from __future__ import annotations

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.trtllm_stats import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, Reading, read_bytes, sniffed

STATS = FORMATS[0]
FOLDER = DATA / "trtllm_stats"
GOOD = (FOLDER / "good.json").read_bytes()
WINDOWS = (FOLDER / "windows.json").read_bytes()
TRITON = (FOLDER / "triton.jsonl").read_bytes()
DAMAGED = (FOLDER / "damaged.json").read_bytes()
S = 1_000_000_000
FEB_3_2026_04_05_06 = 1_770_091_506 * S


def metrics_named(reading: Reading, name: str) -> list[Metric]:
    return [m for sample in reading.samples for m in sample.metrics if m.metric == name]


def test_hits_are_what_the_counters_gained_and_none_where_nothing_was_looked_up() -> None:
    hits = metrics_named(read_bytes(STATS, GOOD), "prefix_hit_ratio")
    # counters (reused, missed): (0,0) (30,70) (30,70) (90,90), restart, (4,12)
    assert [(hit.numerator, hit.denominator, hit.value) for hit in hits] == [
        (0, 0, None),
        (30, 100, 0.3),
        (0, 0, None),
        (60, 80, 0.75),
        (4, 16, 0.25),
    ]
    assert [hit.window for hit in hits] == ["cumulative"] + ["interval"] * 4
    assert [hit.window_ns for hit in hits] == [None, S // 2, S // 4, 2 * S, None]
    assert {hit.hit_unit for hit in hits} == {"blocks"}


def test_restart_and_missing_iterations_are_said() -> None:
    reading = read_bytes(STATS, GOOD)
    assert reading.note_codes == {
        "counter_reset",
        "iterations_missing",
        "naive_clock",
        "blocks_may_include_host",
    }
    (missing,) = [note for note in reading.context.notes if note.code == "iterations_missing"]
    assert " in the file: 2;" in missing.message  # 3 and 4


def test_use_capacity_and_queue() -> None:
    reading = read_bytes(STATS, GOOD)
    assert reading.metric("kv_usage_ratio") == [0.2] * 5
    assert reading.metric("kv_used_tokens") == [3_200] * 5
    assert reading.metric("kv_capacity_tokens") == [16_000]  # said once
    assert reading.context.engine_facts == {"kv_capacity_tokens": 16_000, "block_size": 32}
    assert reading.metric("running_requests") == [3] * 5
    assert reading.metric("waiting_requests") == [2] * 5
    assert reading.metric("computed_tokens") == [300] * 5
    assert reading.metric("iteration_elapsed_s") == [0.05] * 5
    # 12.5 ms a new request; the iteration without new requests has none
    assert reading.metric("queue_s") == [0.0125] * 4


def test_dates_are_month_first_and_have_no_zone() -> None:
    reading = read_bytes(STATS, GOOD)
    assert reading.samples[0].observed_at_ns == FEB_3_2026_04_05_06 + S // 2
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("naive", 1_000)
    zoned = read_bytes(STATS, GOOD, tz="Europe/Berlin")
    assert zoned.samples[0].observed_at_ns == FEB_3_2026_04_05_06 - 3_600 * S + S // 2
    assert zoned.context.clock == "utc"


def test_statistics_of_one_iteration_need_no_difference() -> None:
    reading = read_bytes(STATS, WINDOWS)
    (hit,) = metrics_named(reading, "prefix_hit_ratio")
    assert (hit.numerator, hit.denominator, hit.window) == (5, 8, "last_batch")
    # HBM alone: 50 of 200 blocks, not 100 of 500 with the host's
    assert reading.metric("kv_usage_ratio") == [0.25]
    assert reading.metric("cpu_kv_usage_ratio") == [0.25]
    assert reading.metric("kv_loaded_bytes") == [4_096]
    assert reading.metric("kv_stored_bytes") == [0]
    assert reading.context.engine_facts["kv_capacity_tokens"] == 6_400
    assert "blocks_may_include_host" not in reading.note_codes


def test_spaced_keys_of_tritons_backend() -> None:
    reading = read_bytes(STATS, TRITON)
    assert reading.metric("kv_usage_ratio") == [0.25]
    assert reading.metric("kv_capacity_tokens") == [7_680]
    assert reading.metric("computed_tokens") == [512]
    assert reading.metric("prefix_hit_ratio") == []
    assert sniffed(all_formats(), TRITON) == "trtllm_stats"


def test_damaged_records_are_rejected() -> None:
    reading = read_bytes(STATS, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (8, "invalid_json"),
    ]
    assert [sample.observed_at_ns for sample in reading.samples] == [FEB_3_2026_04_05_06, None]
    assert "iterations_missing" in reading.note_codes


def test_it_is_recognised() -> None:
    for data in (GOOD, WINDOWS, DAMAGED):
        assert sniffed(all_formats(), data) == "trtllm_stats"
