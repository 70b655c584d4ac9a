"""Markdown that a reader's renderer shows as text: tables, lists, and words that cannot act."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvtrace.report.format import safe_text

_SPECIAL = re.compile(r"([\\<>\[\]*#|~])")


def markdown_text(text: str) -> str:
    """One line of text in which no character is markup, but for `code` between two backticks."""
    parts = safe_text(text, limit=max(len(text), 1)).replace("\n", " ").split("`")
    if len(parts) % 2 == 0:
        return _SPECIAL.sub(r"\\\1", "'".join(parts))
    pieces = (
        f"`{part.replace('|', chr(92) + '|')}`" if index % 2 else _SPECIAL.sub(r"\\\1", part)
        for index, part in enumerate(parts)
    )
    return "".join(pieces).strip()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table; its cells are made inert here."""
    lines = [header, ["---"] * len(header)]
    body = [[markdown_text(cell) for cell in row] for row in (header, *rows)]
    return [f"| {' | '.join(row)} |" for row in (body[0], lines[1], *body[1:])]


def markdown_list(items: Sequence[str]) -> list[str]:
    """A list; its items are made inert here."""
    return [f"- {markdown_text(item)}" for item in items]
