"""docs/formats.md says what the formats say."""

from __future__ import annotations

from kvtrace.ingest.docs import render_format_docs
from kvtrace.ingest.registry import own_formats
from tests.conftest import REPO


def test_page_is_up_to_date() -> None:
    page = (REPO / "docs" / "formats.md").read_text(encoding="utf-8")
    assert page == render_format_docs(own_formats()), "run scripts/gen_format_docs.py"


def test_page_has_grade_flags_and_what_is_missing() -> None:
    (azure,) = (entry for entry in own_formats() if entry.name.startswith("azure"))
    page = render_format_docs([azure])
    assert f"| [`{azure.name}`](#{azure.name}) | L |" in page
    assert "- Does not say reuse at any cache capacity: " in page
    assert "- Switch on: " in page
