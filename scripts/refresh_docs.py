#!/usr/bin/env python3
"""Run the commands of the `console` blocks in docs/ again and put what they print under them.

In a folder of its own that has the files which the pages name (tests/docs/workspace.py); only
stdout is shown. A test compares. `scripts/refresh_docs.py docs/tutorial.md` does one page.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import all_blocks  # noqa: E402
from tests.docs.shell import Shell, joined  # noqa: E402
from tests.docs.workspace import build  # noqa: E402

CONSOLE = re.compile(r"(?<=^```console\n)(?P<text>.*?)(?=^```$)", re.M | re.S)
RUN = re.compile(r"^```bash\n(?P<text>.*?)^```$", re.M | re.S)


def refreshed(page: str, shell: Shell) -> str:
    """The page with the output of each command as it is now; its other commands run before."""

    def printed(block: re.Match[str]) -> str:
        lines = re.findall(r"^\$ (.*)$", block["text"], re.M)
        return "".join(f"$ {line}\n{shell.run(line).out}" for line in lines)

    start, done = 0, []
    for block in CONSOLE.finditer(page):
        for before in RUN.finditer(page, start, block.start()):
            for line in joined(before["text"]):
                shell.run(line)
        done += [page[start : block.start()], printed(block)]
        start = block.end()
    return "".join([*done, page[start:]])


def main() -> None:
    """Write the pages."""
    with tempfile.TemporaryDirectory() as folder:
        shell = build(Path(folder))
        for name in sys.argv[1:] or all_blocks():
            path = ROOT / name
            page = path.read_text(encoding="utf-8")
            if CONSOLE.search(page):
                path.write_text(refreshed(page, shell), encoding="utf-8")


if __name__ == "__main__":
    main()
