"""Where a key stands in a TOML text, and what is remarked beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line of a dotted key in a TOML text, from 1; null where it does not stand there.

    The last line that sets the key inside its section; else the header of the deepest section.
    """
    section: tuple[str, ...] = ()
    best, depth = None, -1
    for index, line in enumerate(text.splitlines(), start=1):
        header = re.fullmatch(r"\s*\[+\s*([^\]]+?)\s*\]+\s*(#.*)?", line)
        if header is not None:
            section = tuple(part.strip().strip("\"'") for part in header.group(1).split("."))
            here: tuple[str, ...] = section
        else:
            key = re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line)
            if key is None:
                continue
            here = (*section, *(part.strip("\"'") for part in key.group(1).split(".")))
        if here == tuple(path[: len(here)]) and len(here) > depth:
            best, depth = index, len(here)
    return best


def remark_of(text: str, path: Sequence[str]) -> str:
    """The comment at the end of the line of a key, without its `#`; empty where there is none."""
    line = line_of(text, path)
    return "" if line is None else _comment(text.splitlines()[line - 1]).strip()


def value_of(line: str) -> str:
    """What is assigned in a line, as it is written; empty where nothing is."""
    before = line[: len(line) - len(_comment(line))].rstrip().removesuffix("#")
    key, _, value = before.partition("=")
    return value.strip() if key.strip() and not key.lstrip().startswith(("#", "[")) else ""


def _comment(line: str) -> str:
    """What follows the first `#` that stands in no string."""
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#":
            return line[index + 1 :]
    return ""
