"""Lines of a terminal: a Chinese character takes two columns, and a line may end behind it."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from typing import Final

from kvtrace.report.format import NBSP

_WIDE: Final = "WF"
_PIECE: Final = re.compile(r"[ ]+|[\u2e80-\u9fff\uff00-\uffef][，。：；、）”]*|[^ \u2e80-\u9fff]+")


def columns_of(text: str) -> int:
    """Columns that `text` takes."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(one) in _WIDE else 1 for one in text)


def pad(text: str, width: int) -> str:
    """`text` and spaces up to `width` columns."""
    return text + " " * (width - columns_of(text))


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a number stays with its unit."""
    if columns_of(text) == len(text):
        lines = textwrap.wrap(text, width, break_on_hyphens=False)
    else:
        lines = _wrap_wide(text, width)
    return [line.replace(NBSP, " ") for line in lines or [""]]


def _wrap_wide(text: str, width: int) -> list[str]:
    lines = [""]
    for word in _PIECE.findall(text):
        piece = word
        while columns_of(piece) > width:  # longer than a line
            lines.append(piece[: width // 2])
            piece = piece[width // 2 :]
        if columns_of(lines[-1]) + columns_of(piece.rstrip()) <= width:
            lines[-1] += piece
        else:
            lines.append(piece.lstrip())
    return [line.rstrip() for line in lines if line] or [""]


def fit(text: str, width: int) -> str:
    """`text` on one line of at most `width` columns."""
    plain = text.replace(NBSP, " ")
    return plain if columns_of(plain) <= width else cut(plain, width)


def cut(text: str, width: int) -> str:
    """`text` with a mark that something is left out, in at most `width` columns; whole words.

    A word that is a line of its own is cut all the same.
    """
    kept = text.rstrip(" ,;:，；：")
    while columns_of(kept) > width - 2:
        kept = kept[:-1]
    head, space, _ = kept.rpartition(" ")
    is_inside_word = text[len(kept) :][:1] not in ("", " ") and columns_of(kept[-1:]) == 1
    whole = head if space and is_inside_word else kept
    return f"{whole.rstrip(' ,;:，；：')} …"
