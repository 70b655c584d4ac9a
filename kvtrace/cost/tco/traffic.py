"""What an option moves a day, which wears flash and is billed by the byte in a cloud."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """KV to and from the tiers of an option, of the whole fleet, on a mean day."""

    read_bytes_per_day: float = 0.0
    """From shared stores, over the network."""
    written_bytes_per_day: float = 0.0
    """To shared stores, over the network."""
    flash_written_bytes_per_day: float = 0.0
    """To drives, wherever they are."""
