#!/usr/bin/env python3
"""Write docs/cli.md from the commands of the program; a test compares it."""

from __future__ import annotations

from pathlib import Path

from kvtrace.cli.reference import render_cli_docs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_cli_docs(), encoding="utf-8")


if __name__ == "__main__":
    main()
