"""Progress on stderr: a live line a stage on a terminal, one plain line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from kvtrace.exec.progress import Progress, SilentProgress
from kvtrace.units import MB

_REFRESH_S = 0.1


class LineProgress:
    """Writes what each stage does; rewrites the line in place where `live`."""

    def __init__(self, stream: TextIO, *, live: bool) -> None:
        self._stream = stream
        self._live = live
        self._stage = ""
        self._total_bytes: int | None = None
        self._bytes = self._rows = self._rejected = 0
        self._started_s = self._drawn_s = 0.0

    def start(self, stage: str, *, total_bytes: int | None = None) -> None:
        """A stage begins."""
        self._stage, self._total_bytes = stage, total_bytes
        self._bytes = self._rows = self._rejected = 0
        self._started_s = self._drawn_s = time.monotonic()
        if self._live:
            self._draw()

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        """Some more was done."""
        self._bytes += byte_count
        self._rows += rows
        self._rejected += rejected
        if self._live and time.monotonic() - self._drawn_s >= _REFRESH_S:
            self._draw()

    def finish(self, summary: str = "") -> None:
        """The stage ended."""
        took_s = time.monotonic() - self._started_s
        words = [f"{self._stage}:", summary or self._counts(took_s), f"({took_s:.1f} s)"]
        line = " ".join(word for word in words if word)
        self._stream.write(f"\r\x1b[K{line}\n" if self._live else f"{line}\n")
        self._stream.flush()

    def _counts(self, took_s: float) -> str:
        parts = []
        if self._rows:
            parts.append(f"{self._rows:,} rows")
        if self._bytes:
            parts.append(f"{self._bytes / MB / max(took_s, 1e-9):,.0f} MB/s")
        if self._rows:
            parts.append(f"{self._rejected:,} quarantined")
        return ", ".join(parts)

    def _draw(self) -> None:
        now_s = time.monotonic()
        took_s = now_s - self._started_s
        line = f"{self._stage}: {self._counts(took_s)}"
        if self._total_bytes and self._bytes and took_s > 1:
            left_s = took_s * max(self._total_bytes - self._bytes, 0) / self._bytes
            line += f", about {left_s:.0f} s left"
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()
        self._drawn_s = now_s


def make_progress(*, quiet: bool) -> Progress:
    """Progress for this terminal."""
    if quiet:
        return SilentProgress()
    return LineProgress(sys.stderr, live=sys.stderr.isatty())
