"""What the log says of each replayed request: where it stands, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtrace.schema.arrays import FloatArray, IntArray

UNKNOWN: int = -1
"""A place or count that nobody states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequests:
    """Arrays in the order of the replayed trace; unknown counts are -1, unknown seconds NaN."""

    files: Sequence[str]
    """Paths as a person names them, by file number."""
    file: IntArray
    """(requests,) place in `files`."""
    line: IntArray
    """(requests,) where the record starts in its file."""
    cached_tokens: IntArray
    ttft_s: FloatArray
    """From arrival or from the client's send; what counts from scheduling is left out."""
    queue_s: FloatArray
    prefill_s: FloatArray

    def place(self, request: int) -> tuple[str | None, int | None]:
        """File and line of a request; null where it is none of the log."""
        file, line = int(self.file[request]), int(self.line[request])
        if not 0 <= file < len(self.files) or line < 0:
            return None, None
        return self.files[file], line
