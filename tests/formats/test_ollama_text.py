"""Ollama's own lines: the time of each call, and no tokens."""

from __future__ import annotations

from datetime import UTC, datetime

from kvtrace.ingest.formats.ollama_text import FORMATS
from tests.formats.reading import DATA, confidence, read_bytes

OLLAMA = FORMATS[0]
GOOD = (DATA / "ollama_text" / "good.log").read_bytes()
MALFORMED = (DATA / "ollama_text" / "malformed.log").read_bytes()


def test_access_lines_of_inference_are_requests() -> None:
    reading = read_bytes(OLLAMA, GOOD)
    assert [(row.request_type, row.status, row.e2e_ns) for row in reading.requests] == [
        ("chat", "ok", 72_000_000_000),
        ("chat", "cancelled", 2_123_456_789),
        ("embed", "error", 250_250_000),
    ]
    assert {row.prompt_tokens for row in reading.requests} == {None}
    assert reading.ignored == {"access_line": 1, "other_engine_line": 1, "other_text": 2}
    assert reading.context.engine_version == "0.12.3"
    assert reading.context.evidence_grade == "L"


def test_arrival_is_the_time_of_the_line_less_the_latency() -> None:
    data = b"".join(line for line in GOOD.splitlines(keepends=True) if line.startswith(b"[GIN]"))
    row = read_bytes(OLLAMA, data).requests[0]
    when = datetime.fromtimestamp((row.arrived_at_ns or 0) / 1e9, UTC)
    assert when.isoformat() == "2026-10-03T10:14:14+00:00"


def test_damaged_lines_are_rejected() -> None:
    reading = read_bytes(OLLAMA, MALFORMED)
    assert reading.rows == []
    assert reading.rejected == [(line, "damaged_line") for line in range(1, 5)]


def test_sniff() -> None:
    assert confidence(OLLAMA, GOOD) > 0.7
    assert confidence(OLLAMA, b'time=1 level=INFO source=a.go:1 msg="x"\n') == 0.0
