"""What the numbers of a case rest on beside themselves: each a sentence, or nothing to say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Sentences; each goes on after a comma or a colon."""

    dominant: str | None = None
    """One conversation brings most of the reuse: another month need not have it."""
    binds: str | None = None
    """What limits today's fleet is not prefill, and a pool frees prefill only."""
    pieces: str | None = None
    """KV goes in pieces so small that no link is as fast as it could be."""
