#!/usr/bin/env python3
"""Write docs/findings.md from the registry of findings; a test compares it."""

from __future__ import annotations

from pathlib import Path

from kvtrace.audit.findings.docs import render_finding_docs
from kvtrace.audit.findings.registry import CHECKS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "findings.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_finding_docs(CHECKS), encoding="utf-8")


if __name__ == "__main__":
    main()
