"""nginx: the line is the end of the request, retries, lost clients."""

from __future__ import annotations

from kvtrace.ingest.formats.nginx_access import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "nginx_access" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "nginx_access" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_arrival_is_the_end_less_the_duration() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    # 2.25 - 2; the same; 2.25 - 0.5; 22:26:42 +02:00 - 0.25; 42 - 1; 2.25 - 2
    assert [(row.arrived_at_ns or 0) - START for row in rows] == [
        0,
        0,
        1_500 * MS,
        1_500 * MS,
        750 * MS,
        0,
    ]
    assert [row.e2e_ns for row in rows][2:5] == [500 * MS, 250 * MS, 1_000 * MS]
    assert (reading.context.clock, reading.context.evidence_grade) == ("utc", "L")
    assert [row.ttft_ns for row in rows] == [None] * 6


def test_outcomes_and_retries() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert [row.status for row in reading.requests] == [
        "ok",
        "ok",
        "cancelled",
        "error",
        "gateway_cache_hit",
        "ok",
    ]
    assert [row.flags for row in reading.requests] == [
        (),
        ("retried",),
        (),
        (),
        (),
        ("retried",),
    ]


def test_only_inference_is_read() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert reading.ignored == {"not_an_inference_path": 3}  # /metrics, /health, /api/login
    assert [row.request_type for row in reading.requests][2:5] == [
        "chat/completions",
        "embeddings",
        "messages",
    ]


def test_a_connection_without_a_request_line_is_no_damage() -> None:
    probe = (
        b'{"msec": "1780000000.250", "request": "", "status": "400", "request_time": "0.000"}\n'
        b'{"msec": "1780000000.250", "status": "400", "request_time": "0.000"}\n'
    )
    reading = read_bytes(ENTRY, probe)
    assert reading.ignored == {"not_an_inference_path": 1}
    assert reading.rejected == [(2, "invalid_field")]  # its log has no field of the request


def test_damaged_lines() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 7)),
        (7, "invalid_json"),
    ]
    assert [row.flags for row in reading.requests] == [
        (),
        ("negative_request_time",),
        ("time_not_an_epoch",),
    ]


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "nginx_access"
    assert sniffed(all_formats(), DAMAGED) == "nginx_access"
