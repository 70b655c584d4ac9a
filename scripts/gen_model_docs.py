#!/usr/bin/env python3
"""Run the commands in docs/model/*.md again and put what they print under them; a test compares."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from kvtrace.cli.app import app

PAGES = Path(__file__).resolve().parents[1] / "docs" / "model"
BLOCK = re.compile(r"```console\n\$ kvtrace (?P<command>[^\n]*)\n(?P<printed>.*?)```", re.DOTALL)


def render(page: str) -> str:
    """The page with the output of each command as it is now."""
    return BLOCK.sub(lambda match: _block(match["command"]), page)


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
