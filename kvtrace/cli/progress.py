"""Progress on stderr: a live line a stage on a terminal, one plain line a stage elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from kvtrace.cli.voice import voice
from kvtrace.exec.progress import Progress, SilentProgress
from kvtrace.units import MB

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID

_WHOLE_MB_PER_S = 10
"""From here a tenth of a MB/s says nothing."""


class PlainProgress:
    """Writes one line when a stage ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage = ""
        self._bytes = self._rows = self._rejected = 0
        self._started_s = 0.0

    def start(self, stage: str, *, total_bytes: int | None = None) -> None:
        """A stage begins."""
        self._stage = stage
        self._bytes = self._rows = self._rejected = 0
        self._started_s = time.monotonic()

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        """Some more was done."""
        self._bytes += byte_count
        self._rows += rows
        self._rejected += rejected

    def finish(self, summary: str = "") -> None:
        """The stage ended."""
        took_s = time.monotonic() - self._started_s
        told = ", ".join(part for part in (summary, self.counts() if self._bytes else "") if part)
        self._stream.write(f"{self._stage}: {told} ({took_s:.1f} s)\n")
        self._stream.flush()

    def counts(self) -> str:
        """Rows, speed and quarantined rows of this stage so far."""
        if not self._bytes:
            return f"{self._rows:,} rows" if self._rows else ""
        speed = self._bytes / MB / max(time.monotonic() - self._started_s, 1e-9)
        decimals = 0 if speed >= _WHOLE_MB_PER_S else 1
        shown = f"{speed:,.{decimals}f} MB/s"
        return f"{self._rows:,} rows, {shown}, {self._rejected:,} quarantined"


class LiveProgress(PlainProgress):
    """The same, with a line that moves while the stage runs: counts, bar and time left."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._bars: RichBars | None = None
        self._task: TaskID | None = None

    def start(self, stage: str, *, total_bytes: int | None = None) -> None:
        """A stage begins."""
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichBars

        super().start(stage, total_bytes=total_bytes)
        self._close()
        self._bars = RichBars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
            TimeRemainingColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        self._task = self._bars.add_task(stage, total=total_bytes, counts="")
        self._bars.start()

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        """Some more was done."""
        super().advance(byte_count=byte_count, rows=rows, rejected=rejected)
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, advance=byte_count, counts=self.counts())

    def finish(self, summary: str = "") -> None:
        """The stage ended."""
        self._close()
        super().finish(summary)

    def _close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


def make_progress() -> Progress:
    """Progress for this terminal."""
    if voice().is_quiet:
        return SilentProgress()
    is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return LiveProgress(sys.stderr) if is_live else PlainProgress(sys.stderr)
