"""How much a query may take: rows, seconds, memory, disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OWN_MEMORY: Final = "2GiB"
"""Memory of a query that is not ours; past it DuckDB spills to a private temporary folder."""
OWN_SPILL: Final = "4GiB"
"""Disk that such a query may spill; a cross join then fails instead of filling the disk."""
OWN_MAX_ROWS: Final = 1_000_000
"""Rows that such a query may return unless a limit is asked for: they are held in memory."""
OWN_TIMEOUT_S: Final = 600.0
"""Seconds that such a query may take unless others are asked for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run; None: no bound."""

    rows: int | None = None
    """As asked for: the result is cut there."""
    max_rows: int | None = None
    """More rows than this are an error, unless `rows` asks for a cut."""
    timeout_s: float | None = None


NO_LIMITS: Final = Limits()
