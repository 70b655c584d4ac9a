"""Sizes as Mooncake prints them: `1.50 GB` counts in powers of 1024, `infinite` is no size."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

SIZE: Final = r"[0-9]{1,12}(?:\.[0-9]{1,6})? (?:B|KB|MB|GB|TB|PB)"
"""Of a printed size, for use inside another pattern."""
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) (B|KB|MB|GB|TB|PB)")
_POWERS: Final = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4, "PB": 5}


def size_bytes(text: str) -> float | None:
    """Bytes of a printed size; None for `infinite`.

    Raises:
        ValueError: it is neither.
    """
    if text == "infinite":
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("not a size")
    return float(Decimal(match[1]) * Decimal(1024) ** _POWERS[match[2]])
