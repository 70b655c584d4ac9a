#!/usr/bin/env python3
"""Write docs/queries.md from the query files; a test compares it."""

from __future__ import annotations

from pathlib import Path

from kvtrace.query.catalog import load_catalog
from kvtrace.query.docs import render_query_docs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "queries.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_query_docs(load_catalog()), encoding="utf-8")


if __name__ == "__main__":
    main()
