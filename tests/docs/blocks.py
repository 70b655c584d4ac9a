"""The code blocks of the documentation: what stands in them, and what they are.

The first word after the fence says what a block is. `title="NAME.toml"` names the file that it is:
its reader reads it, and the commands of the same page find it. `title="… (not run here: WHY)"`
marks a block that cannot run, and tells the reader so, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conftest import REPO

_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
_TITLE: Final = re.compile(r'title="(?P<title>[^"]*)"')
_NOT_RUN: Final = re.compile(r"not run here: (?P<why>[^)]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of one page."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def place(self) -> str:
        """Where it stands: the page and the line of its fence."""
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str | None:
        """Why it is not run, or nothing."""
        found = _NOT_RUN.search(self.title)
        return None if found is None else found["why"]

    @property
    def file(self) -> str | None:
        """The file that the block is, if its title names one."""
        return self.title if re.fullmatch(r"[\w./-]+\.\w+", self.title) else None


def pages() -> tuple[Path, ...]:
    """Every page of the documentation, those at the root too."""
    roots = [REPO / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    return (*roots, REPO / "sample_traces" / "README.md", *sorted((REPO / "docs").rglob("*.md")))


def blocks_of(text: str, page: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    for found in _FENCE.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        title = _TITLE.search(rest)
        yield Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language=language,
            title="" if title is None else title["title"],
            text="".join(
                line.removeprefix(found["indent"])
                for line in found["text"].splitlines(keepends=True)
            ),
        )


def all_blocks() -> dict[str, list[Block]]:
    """Page, as seen from the root of the repository, to its blocks."""
    found = {}
    for path in pages():
        name = path.relative_to(REPO).as_posix()
        found[name] = list(blocks_of(path.read_text(encoding="utf-8"), name))
    return found
