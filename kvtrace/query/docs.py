"""The page that documents every query, made from what the files say of themselves."""

from __future__ import annotations

from itertools import groupby

from kvtrace.query.catalog import Catalog
from kvtrace.query.header import QueryInfo

_INTRO = """# Queries

Made by `scripts/gen_query_docs.py` from the headers of `queries/`; do not edit by hand.

Each query answers one question in plain SQL over a dataset. Run one with
`kvtrace query DIR NAME`, or in the duckdb CLI inside the dataset folder: `.read open.sql`,
then what `--show-sql` prints. A parameter that is not set takes its default. Null means that the
data cannot say; a zero was measured. Queries under `quality/` return offending rows: none is good.
"""


def render_query_docs(catalog: Catalog) -> str:
    """The Markdown page over all queries of the catalogue."""
    infos = [catalog.describe(name) for name in catalog.names()]
    parts = [_INTRO]
    for topic, group in groupby(infos, key=lambda info: info.name.split("/")[0]):
        parts.append(f"## {topic}\n")
        parts += [_query(info) for info in group]
    return "\n".join(parts)


def _query(info: QueryInfo) -> str:
    facts = [
        f"### {info.name}\n",
        f"{info.question}\n",
        f"- Grain: {info.grain}",
        f"- Reads: {', '.join(f'`{table}`' for table in info.reads)}",
        f"- Parameters: {_params(info)}",
    ]
    if info.notes:
        facts.append(f"- Notes: {' '.join(info.notes)}")
    facts += ["", "| column | unit | meaning |", "|---|---|---|"]
    facts += [
        f"| `{column.name}` | {_cell(column.unit)} | {_cell(column.meaning)} |"
        for column in info.columns
    ]
    return "\n".join([*facts, ""])


def _params(info: QueryInfo) -> str:
    if not info.params:
        return "none"
    return ", ".join(
        f"`{param.name}` {param.type} (default {param.default or 'null'})" for param in info.params
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
