#!/usr/bin/env python3
"""Run the commands in docs/model/*.md again and put what they print under them; a test compares.

`<!-- verdicts TOKENS CACHED -->` up to `<!-- end -->` holds the table of scripts/verdict_table.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner
from verdict_table import verdict_table

from kvtrace.cli.app import app

PAGES = Path(__file__).resolve().parents[1] / "docs" / "model"
BLOCK = re.compile(r"```console\n\$ kvtrace (?P<command>[^\n]*)\n(?P<printed>.*?)```", re.DOTALL)

VERDICTS = re.compile(
    r"(?P<start><!-- verdicts (?P<tokens>\d+) (?P<cached>\d+) -->\n).*?(?P<end><!-- end -->)",
    re.DOTALL,
)


def render(page: str) -> str:
    """The page with the output of each command as it is now."""
    page = VERDICTS.sub(_verdicts, page)
    return BLOCK.sub(lambda match: _block(match["command"]), page)


def _verdicts(match: re.Match[str]) -> str:
    table = verdict_table(int(match["tokens"]), int(match["cached"]))
    return f"{match['start']}{table}\n{match['end']}"


def _block(command: str) -> str:
    done = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
    if done.exit_code != 0:
        raise SystemExit(f"`kvtrace {command}` ended with {done.exit_code}")
    return f"```console\n$ kvtrace {command}\n{done.stdout}```"


def main() -> None:
    """Write the pages."""
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
