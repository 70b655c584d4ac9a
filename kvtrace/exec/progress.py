"""Progress by callback: stages tell how far they are; the CLI decides how that looks."""

from __future__ import annotations

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
