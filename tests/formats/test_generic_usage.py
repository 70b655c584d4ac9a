"""Rows of nobody in particular: plain names are read, every other log is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.formats.generic_usage import FORMATS
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

(GENERIC,) = FORMATS
HOME = DATA / "generic_usage"


def test_counts_times_and_durations_under_plain_names() -> None:
    reading = read_bytes(GENERIC, (HOME / "good.jsonl").read_bytes())
    first, second, third, fourth = reading.requests
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (100, 64, 7)
    assert (first.ttft_ns, first.e2e_ns) == (120_500_000, 900_000_000)
    assert (first.request_id, first.session_id, first.llm) == ("g-1", "s-1", "m-8b")
    # seconds, milliseconds and a date: 0.5 s, 1.5 s and 3 s after 2026-05-28T20:26:40Z
    start = 1_780_000_000 * 10**9
    assert [row.arrived_at_ns for row in (first, second, third)] == [
        start + 500_000_000,
        start + 1_500_000_000,
        start + 3 * 10**9,
    ]
    assert second.cached_tokens is None
    assert (third.prompt_tokens, third.output_tokens) == (10, 2)
    assert fourth.arrived_at_ns is None
    assert "time_not_an_epoch" in fourth.flags
    assert "mixed_epoch_units" in reading.note_codes


def test_bad_rows_are_named() -> None:
    reading = read_bytes(GENERIC, (HOME / "malformed.jsonl").read_bytes())
    assert [row.request_id for row in reading.requests] == ["b-0"]
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (6, "invalid_json"),
    ]
    assert reading.ignored == {"without_usage": 1}
    assert reading.context.evidence_grade == "L"


@pytest.mark.parametrize(
    "line",
    [
        b'{"ts": 1780000000, "level": "info", "msg": "started"}',
        b'{"timestamp": "2026-05-28T00:00:00Z", "message": "x", "total_tokens": "many"}',
        b'{"id": 1, "name": "config"}',
    ],
)
def test_other_programs_logs_are_left_alone(line: bytes) -> None:
    assert sniffed(all_formats(), line + b"\n" + line + b"\n") is None


def test_rows_with_times_alone_tell_when_requests_arrived() -> None:
    data = b'{"ts": "2026-03-02T08:00:00Z"}\n{"ts": "2026-03-02T16:00:01+08:00"}\n'
    assert sniffed(all_formats(), data) == "generic_usage"
    first, second = read_bytes(GENERIC, data).requests
    assert (first.prompt_tokens, second.prompt_tokens) == (None, None)
    assert first.arrived_at_ns is not None
    assert second.arrived_at_ns == first.arrived_at_ns + 10**9


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "prompt_tokens"),
    [
        ("nasty/multi_member.jsonl.gz", 50, 6225),
        ("nasty/multi_frame.jsonl.zst", 50, 6225),
        ("nasty/rotated", 50, 6225),
        ("nasty/dup_ids.jsonl", 3, 119),
        ("nasty/truncated.jsonl.gz", 42, None),
        ("nasty/gz_without_suffix.jsonl", 3, None),
        ("nasty/truncated_last_line.jsonl", 5, None),
        ("nasty/epoch_units.jsonl", 7, 7),
    ],
)
def test_excerpts_without_a_producer(
    shared_dir: Path, name: str, rows: int, prompt_tokens: int | None
) -> None:
    ingested = ingest_paths([shared_dir / "trace_excerpts" / name], salt=b"salt")
    assert ingested.totals.requests == rows
    if prompt_tokens is not None:
        assert ingested.totals.prompt_tokens == prompt_tokens


@pytest.mark.shared
def test_excerpt_of_every_zone(shared_dir: Path) -> None:
    path = shared_dir / "trace_excerpts" / "nasty" / "iso_zones.jsonl"
    reading = read_bytes(GENERIC, path.read_bytes())
    base = 1_772_438_400_000_000
    micros = [
        None if row.arrived_at_ns is None else row.arrived_at_ns // 1000 for row in reading.requests
    ]
    assert micros == [base, base, base, base + 123_456, base, base + 250_000, base]
    assert {"naive_clock", "mixed_zones"} <= reading.note_codes
