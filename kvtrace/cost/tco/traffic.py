"""What an option moves a day, which wears flash and is billed by the byte in a cloud."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """KV to and from the tiers of an option, of the whole fleet, on a mean day."""

    read_bytes_per_day: float = 0.0
    written_bytes_per_day: float = 0.0
    object_bytes: float = 4 * 1024**2
    """Bytes of one object, which one request reads or writes."""
