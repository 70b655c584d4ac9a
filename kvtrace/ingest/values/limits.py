"""Up to where a token count is believed, and up to where it is a count at all."""

from __future__ import annotations

from typing import Final

PLAUSIBLE_TOKENS: Final = 16_000_000
"""Longer prompts or replies are flagged: the longest context that any vendor has published by 2025
is 10 million tokens (Llama 4 Scout), so such a number is mostly a unit or a field gone wrong."""
IMPLAUSIBLE_FLAG: Final = "implausible_length"
MAX_COUNT: Final = 2**53 - 1
"""Larger counts are rejected: JSON numbers past 2^53 are not exact in most producers, and sums of a
thousand of them do not fit 64 bits."""
