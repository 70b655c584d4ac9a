"""Mooncake logs: counters differenced, rates left rates, objects never taken for tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.mooncake_store import FORMATS
from kvtrace.ingest.formats.mooncake_store.units import size_bytes
from kvtrace.ingest.registry import all_formats
from kvtrace.schema.metrics import METRICS
from tests.formats.reading import DATA, Reading, confidence, read_bytes, sniffed

MOONCAKE = FORMATS[0]
FOLDER = DATA / "mooncake_store"
MASTER = (FOLDER / "good_master.log").read_bytes()
RATES = (FOLDER / "good_master_rates.log").read_bytes()
CLIENT = (FOLDER / "good_client.log").read_bytes()
MALFORMED = (FOLDER / "malformed.log").read_bytes()
GIB, MIB = 2**30, 2**20
S = 1_000_000_000


def seen(reading: Reading, name: str) -> list[Metric]:
    """This metric of every sample, in file order."""
    return [m for sample in reading.samples for m in sample.metrics if m.metric == name]


def test_counters_become_what_they_gained_and_a_restart_counts_from_zero() -> None:
    hits = seen(read_bytes(MOONCAKE, MASTER), "pool_hit_ratio")
    assert [(m.numerator, m.denominator, m.value, m.window, m.window_ns) for m in hits] == [
        (20, 30, 20 / 30, "cumulative", None),  # since the start: no interval
        (45, 60, 0.75, "interval", 10 * S),  # 65/90 - 20/30
        (0, 0, None, "interval", None),  # 0/0 after a restart: no ratio, not 0 %
        (6, 8, 0.75, "cumulative", None),  # the interim spelling, another build
    ]
    assert {m.hit_unit for m in hits} == {"objects"}


def test_evictions_are_differenced_too() -> None:
    reading = read_bytes(MOONCAKE, MASTER)
    assert reading.metric("pool_evicted_objects") == [7, 10, 2, 0, 0]
    assert reading.metric("pool_evicted_bytes") == [512 * MIB, GIB, 128 * MIB, 0, 0]


def test_state_of_the_pool_is_of_the_instant() -> None:
    reading = read_bytes(MOONCAKE, MASTER)
    assert reading.metric("pool_used_bytes")[:2] == [GIB, 2 * GIB]
    assert reading.metric("pool_capacity_bytes")[3] == 512 * GIB
    assert reading.metric("pool_usage_ratio") == [0.25, 0.5, 0.25, 0.0, 0.25]
    assert reading.metric("pool_objects") == [96, 99, 9, 12, 8]
    assert reading.metric("pool_clients") == [2, 2, 2]  # older lines do not say
    assert reading.metric("pool_ssd_used_bytes") == [2 * GIB] * 3
    assert reading.metric("pool_ssd_capacity_bytes") == [None] * 3  # infinite
    assert reading.context.engine_facts == {"master_generation": "1, 2, 2b"}
    assert reading.context.evidence_grade == "C"


def test_success_of_get_and_exist_is_no_hit() -> None:
    # the fourth line has Get=9/10 and Exist=20/20, and no batch part
    assert all(
        m.metric != "pool_hit_ratio" for m in read_bytes(MOONCAKE, MASTER).samples[3].metrics
    )


def test_rates_of_the_newest_master_are_of_their_interval() -> None:
    reading = read_bytes(MOONCAKE, RATES)
    hits = seen(reading, "pool_hit_ratio")
    assert [(m.value, m.numerator, m.denominator, m.window_ns) for m in hits] == [
        (0.75, 300, 400, 10 * S),  # 30 and 40 a second over the usual interval
        (0.75, 300, 400, 20 * S),  # 15 and 20 a second over 20 s between two lines
        (None, 0, 0, 20 * S),
    ]
    assert reading.metric("pool_failed_allocations") == [12, 3, 0]
    assert reading.metric("pool_usage_ratio") == [0.969, 0.977, 0.977]
    assert {m.window for m in seen(reading, "pool_evicted_objects")} == {"interval"}


def test_full_pool_that_evicts_nothing_is_said_to_be_stuck() -> None:
    assert "pool_stuck" in read_bytes(MOONCAKE, RATES).note_codes
    two_lines = b"".join(RATES.splitlines(keepends=True)[:2])
    assert "pool_stuck" not in read_bytes(MOONCAKE, two_lines).note_codes
    evicting = RATES.replace(b"keys=0", b"keys=5")
    assert "pool_stuck" not in read_bytes(MOONCAKE, evicting).note_codes


def test_year_in_the_prefix_is_read() -> None:
    reading = read_bytes(MOONCAKE, RATES, modified_at_ns=0)
    assert reading.samples[0].observed_at_ns == 1_772_359_200 * S  # 2026-03-01T10:00:00
    assert "year_assumed" not in reading.note_codes


def test_masters_of_one_log_are_differenced_apart() -> None:
    lines = [line for line in MASTER.splitlines(keepends=True)[:2] for _ in range(2)]
    names = (b"(a pid=1) ", b"(b pid=2) ") * 2
    data = b"".join(name + line for name, line in zip(names, lines, strict=True))
    hits = seen(read_bytes(MOONCAKE, data), "pool_hit_ratio")
    assert [(m.numerator, m.denominator) for m in hits] == [(20, 30), (20, 30), (45, 60), (45, 60)]


def test_transfer_engine_prints_rates_and_latency_buckets() -> None:
    reading = read_bytes(MOONCAKE, CLIENT)
    assert reading.metric("transfer_bytes_per_s") == [10.5 * MIB, 0.25 * MIB]
    assert reading.metric("transfer_tasks") == [200]
    # 60 % up to 10 us, 95 % up to 100 us, 99.5 % up to 200 us; both spellings of the micro sign
    assert reading.metric("transfer_p50_le_s") == [10e-6]
    assert reading.metric("transfer_p90_le_s") == [100e-6]
    assert reading.metric("transfer_p99_le_s") == [200e-6]
    assert reading.metric("transfer_slow_ratio") == [0.005]
    assert {m.window_ns for m in reading.samples[0].metrics} == {5 * S}


def test_client_summary_takes_its_own_lines_only() -> None:
    reading = read_bytes(MOONCAKE, CLIENT)
    read = seen(reading, "pool_read_bytes")
    assert [(m.value, m.window, m.window_ns) for m in read] == [
        (GIB, "cumulative", None),
        (2.5 * GIB, "interval", 10 * S),  # 3.5 - 1.0; this summary was cut short
    ]
    assert reading.metric("pool_written_bytes") == [512 * MIB, 0]
    assert reading.metric("pool_read_p95_le_s") == [2e-3]
    assert reading.metric("pool_write_p95_le_s") == [5e-3]
    # a line of vLLM and one of another program stood inside
    assert (reading.ignored["other_program"], reading.ignored["other_text"]) == (1, 1)
    assert reading.rejected == []


def test_line_of_a_summary_without_its_heading_is_other_text() -> None:
    reading = read_bytes(MOONCAKE, b"Total Read: 1.00 GB\nBatch Get: count=1\n")
    assert (reading.rows, reading.ignored) == ([], {"other_text": 2})


def test_metrics_are_of_the_vocabulary() -> None:
    for data in (MASTER, RATES, CLIENT):
        for sample in read_bytes(MOONCAKE, data).samples:
            names = [m.metric for m in sample.metrics]
            assert len(set(names)) == len(names)
            for metric in sample.metrics:
                assert METRICS[metric.metric].unit == metric.unit


def test_damaged_lines_are_rejected_whole() -> None:
    reading = read_bytes(MOONCAKE, MALFORMED)
    assert reading.rejected == [
        (1, "damaged_line"),  # 31 of 30 items
        (2, "damaged_line"),  # 1 of 4 GB is not 85 %
        (3, "damaged_line"),
        (4, "damaged_line"),
        (5, "damaged_line"),  # the brace of the master's part is not closed
        (6, "damaged_line"),
        (9, "damaged_line"),
        (10, "invalid_time"),
        (11, "damaged_line"),  # the file ends in it
    ]
    assert reading.rows == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 B", 0),
        ("1.50 KB", 1536),
        ("2.00 MB", 2 * MIB),
        ("1.50 GB", 1.5 * GIB),
        ("2.00 TB", 2 * 2**40),
        ("infinite", None),
    ],
)
def test_sizes_count_in_powers_of_1024(text: str, expected: float | None) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "1.5", "1.5 GiB", "nan GB", "-1 B", "١ GB"])
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        size_bytes(text)


def test_sniffed_by_its_messages() -> None:
    for data in (MASTER, RATES, CLIENT):
        assert sniffed(all_formats(), data) == "mooncake_store"
    klog = b'I0301 10:00:00.000000 1 gateway.go:1] "request start" requestID="a"\n'
    assert confidence(MOONCAKE, klog) == 0


@given(st.sampled_from([MASTER, RATES, CLIENT]), st.integers(min_value=0, max_value=3_000))
def test_file_cut_anywhere_invents_nothing(data: bytes, length: int) -> None:
    whole, cut = read_bytes(MOONCAKE, data), read_bytes(MOONCAKE, data[:length])
    for name in ("pool_hit_ratio", "pool_used_bytes", "transfer_tasks", "pool_read_bytes"):
        found = cut.metric(name)
        assert found == whole.metric(name)[: len(found)]


@given(
    st.sampled_from([MASTER, RATES, CLIENT]),
    st.lists(st.tuples(st.integers(0, 2_000), st.binary(max_size=6)), max_size=6),
)
def test_any_bytes_are_counted_and_never_raise(data: bytes, edits: list[tuple[int, bytes]]) -> None:
    for at, patch in edits:
        data = data[:at] + patch + data[at + len(patch) :]
    for metric in seen(read_bytes(MOONCAKE, data), "pool_hit_ratio"):
        assert metric.value is None or 0 <= metric.value <= 1
