#!/usr/bin/env python3
"""Write docs/formats.md from the registry of formats; a test compares it."""

from __future__ import annotations

from pathlib import Path

from kvtrace.ingest.docs import render_format_docs
from kvtrace.ingest.registry import own_formats

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_format_docs(own_formats()), encoding="utf-8")


if __name__ == "__main__":
    main()
