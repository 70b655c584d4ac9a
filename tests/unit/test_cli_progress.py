"""Lines of progress: what a stage read and how fast."""

from __future__ import annotations

import io

import pytest

from kvtrace.cli.progress import PlainProgress


@pytest.mark.parametrize(
    ("byte_count", "told"),
    [
        (300_000, "12 rows, 0.3 MB/s, 1 quarantined"),  # 0.3 MB in a second
        (9_940_000, "12 rows, 9.9 MB/s, 1 quarantined"),
        (1_234_400_000, "12 rows, 1,234 MB/s, 1 quarantined"),
    ],
)
def test_a_slow_stage_is_not_told_as_no_speed_at_all(
    monkeypatch: pytest.MonkeyPatch, byte_count: int, told: str
) -> None:
    monkeypatch.setattr("kvtrace.cli.progress.time.monotonic", iter([5.0, 6.0]).__next__)
    progress = PlainProgress(io.StringIO())
    progress.start("ingest")
    progress.advance(byte_count=byte_count, rows=12, rejected=1)
    assert progress.counts() == told
