"""Progress by callback: stages tell how far they are; the CLI decides how that looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """What a long stage calls. One stage at a time; `advance` is cheap and may be called often."""

    def start(self, stage: str, *, total_bytes: int | None = None) -> None:
        """A stage begins; `total_bytes` of input are expected if known."""
        ...

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        """Some more was done since the last call."""
        ...

    def finish(self, summary: str = "") -> None:
        """The stage ended; `summary` is one phrase for people."""
        ...


class SilentProgress:
    """Progress that nobody watches."""

    def start(self, stage: str, *, total_bytes: int | None = None) -> None:
        """Ignore."""

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        """Ignore."""

    def finish(self, summary: str = "") -> None:
        """Ignore."""


Told = Callable[[str, float | None], None]
"""Takes the stage and how much of its input is read, 0..1; None: that is not known."""


class ToldProgress:
    """Progress that calls a function: as a stage begins, with its input, at its end."""

    def __init__(self, tell: Told) -> None:
        self._tell = tell
        self._stage = ""
        self._total: int | None = None
        self._done = 0

    def start(self, stage: str, *, total_bytes: int | None = None) -> None:
        """A stage begins."""
        self._stage, self._total, self._done = stage, total_bytes, 0
        self._tell(stage, 0.0 if total_bytes else None)

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        """Some more was done."""
        self._done += byte_count
        if self._total and byte_count:
            self._tell(self._stage, min(1.0, self._done / self._total))

    def finish(self, summary: str = "") -> None:
        """The stage ended."""
        self._tell(self._stage, 1.0)


def watched(progress: Progress | Told | None) -> Progress:
    """What stages call: a `Progress` as it is, a function wrapped, nothing as silence."""
    if progress is None:
        return SilentProgress()
    return ToldProgress(progress) if callable(progress) else progress


def counted(number: int, noun: str) -> str:
    """`1 replay`, `2 replays`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
