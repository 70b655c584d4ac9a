#!/usr/bin/env python3
"""Write docs/metrics.md from the metrics and tables of a dataset; a test compares it."""

from __future__ import annotations

from pathlib import Path

from kvtrace.schema.docs import render_metric_docs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_metric_docs(), encoding="utf-8")


if __name__ == "__main__":
    main()
