"""Names that `explain` knows, for a shell's completion: nothing heavy is loaded for them."""

from __future__ import annotations

from kvtrace.query.folders import find_queries
from kvtrace.report.explain.names import explainable_names


def names_to_explain(start: str = "") -> list[str]:
    """Findings, codes, queries, options, outcomes and terms that begin so, sorted."""
    return [name for name in explainable_names(find_queries()) if name.startswith(start)]
