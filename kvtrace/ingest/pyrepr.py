"""Python reprs inside log lines: where a quoted text ends, and how many numbers a list holds.

Prompts are printed with `repr` and may imitate any log line, so what stands behind them must be
found by scanning the repr itself. Every scan here is linear: possessive quantifiers, which do not
backtrack.
"""

from __future__ import annotations

import re
from typing import Final

_STRING: Final = {
    "'": re.compile(r"'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL),
    '"': re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL),
}
_INT_LIST = re.compile(r"\[(?:\d++(?:, ?\d++)*+)?\]")


def string_end(text: str, start: int) -> int | None:
    """Index behind the quoted string (or `None`) that starts at `start`; None if it never ends."""
    if text.startswith("None", start):
        return start + 4
    pattern = _STRING.get(text[start : start + 1])
    match = pattern.match(text, start) if pattern is not None else None
    return match.end() if match is not None else None


def int_list_length(text: str) -> int | None:
    """How many integers the list repr holds; None if it is not a whole list of integers."""
    return None if _INT_LIST.fullmatch(text) is None else checked_list_length(text)


def checked_list_length(text: str) -> int:
    """How many integers a list repr holds that is known to be whole."""
    return 0 if len(text) == 2 else text.count(",") + 1
