"""Batch lines of long logs: singles at first, then sums and means that lose no token."""

from __future__ import annotations

import pytest

from kvtrace.ingest.contract import SampleRow
from kvtrace.ingest.formats.sglang_text import FORMATS, pool
from kvtrace.units import NS_PER_S
from tests.formats.reading import Reading, read_bytes
from tests.formats.sglang import metric_of

SGLANG = FORMATS[0]


def prefill(second: int, new: int, cached: int, *, usage: str = "0.10", rank: str = "DP0") -> str:
    minute, rest = divmod(second, 60)
    return (
        f"[2025-12-01 09:{minute:02d}:{rest:02d} {rank}] Prefill batch, #new-seq: 1, #new-token:"
        f" {new}, #cached-token: {cached}, token usage: {usage}, #running-req: 2, #queue-req: 0, \n"
    )


def read(monkeypatch: pytest.MonkeyPatch, *lines: str, singles: int = 1) -> Reading:
    monkeypatch.setattr(pool, "MAX_SINGLE", singles)
    return read_bytes(SGLANG, "".join(lines).encode())


def seconds(sample: SampleRow) -> int:
    """Seconds after nine."""
    return ((sample.observed_at_ns or 0) // NS_PER_S) % 3600


def test_lines_of_a_slice_are_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(
        monkeypatch,
        prefill(0, 100, 0),  # single
        prefill(11, 10, 30, usage="0.20"),
        prefill(12, 30, 50, usage="0.40"),
        prefill(35, 5, 5, usage="nan"),
    )
    first, second, third = reading.samples
    assert metric_of(first, "computed_tokens").window == "last_batch"
    computed = metric_of(second, "computed_tokens")
    assert (computed.value, computed.window, computed.window_ns) == (
        40.0,
        "interval",
        10 * NS_PER_S,
    )
    hit = metric_of(second, "prompt_hit_ratio")
    assert (hit.value, hit.numerator, hit.denominator) == (80 / 120, 80.0, 120.0)
    usage = metric_of(second, "kv_usage_ratio")
    assert usage.value == pytest.approx(0.3)  # (0.2 + 0.4) / 2
    assert usage.numerator == pytest.approx(0.6)
    assert usage.denominator == 2.0
    # the slice 30 to 40 counts what came since 20
    assert metric_of(third, "computed_tokens").window_ns == 20 * NS_PER_S
    assert [metric.metric for metric in third.metrics].count("kv_usage_ratio") == 0  # only nan
    assert [seconds(sample) for sample in reading.samples] == [0, 12, 35]
    assert "batches_pooled" in reading.note_codes


def test_engines_and_shapes_are_pooled_apart_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decode = (
        "[2025-12-01 09:00:03 DP0] Decode batch, #running-req: 2, #token: 5632, token usage: 0.01,"
        " gen throughput (token/s): 87.95, #queue-req: 0, \n"
    )
    lines = [prefill(n % 40, n, 2 * n, rank=f"DP{n % 3}") for n in range(1, 60)]
    odd = "[2025-12-01 09:00:39 DP0] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 1,"
    reading = read(monkeypatch, *lines, decode, odd + " #queue-req: 0\n", singles=10)
    assert sum(value or 0 for value in reading.metric("computed_tokens")) == 59 * 30 + 7
    assert sum(value or 0 for value in reading.metric("cached_tokens")) == 59 * 60 + 1
    assert {sample.engine for sample in reading.samples} == {"DP0", "DP1", "DP2"}
    assert reading.metric("generation_tokens_per_s") == [87.95]
    assert len(reading.samples) < 61


def test_slices_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(monkeypatch, *(prefill(10 * n, 1, 1) for n in range(60)), singles=2)
    widths = [metric_of(sample, "computed_tokens").window_ns for sample in reading.samples[2:]]
    # slices of 10 s, 60 s and 600 s; each counts from the end of the one before, 20 s to 600 s
    assert [(width or 0) // NS_PER_S for width in widths] == [10, 10, 10, 10, 60, 480]
    assert sum(value or 0 for value in reading.metric("computed_tokens")) == 60


def test_lines_without_time_are_pooled_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    line = prefill(0, 1, 1).partition("] ")[2]
    reading = read(monkeypatch, *([line] * 200), singles=1)
    assert reading.metric("computed_tokens") == [1.0, 64.0, 64.0, 64.0, 7.0]
    assert {metric_of(s, "computed_tokens").window_ns for s in reading.samples} == {None}


def test_cumulative_rates_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        "Prefill batch. #new-seq: 1, #new-token: 50, #cached-token: 50, cache hit rate: {}%,"
        " #running-req: 0, #queue-req: 0\n"
    )
    reading = read(monkeypatch, *(line.format(rate) for rate in ("10.00", "20.00", "30.00")))
    assert reading.metric("prefix_hit_ratio") == [0.1, 0.3]  # the last printed one


def test_engines_without_number_are_not_held_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_MAX_ENGINES", 4)
    reading = read(monkeypatch, *(prefill(0, 1, 1, rank=f"DP{n}") for n in range(30)), singles=1)
    assert sum(value or 0 for value in reading.metric("computed_tokens")) == 30
