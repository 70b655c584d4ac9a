"""The page that documents every query, made from what the files say of themselves."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from kvtrace.query.catalog import Catalog
from kvtrace.query.header import ParamInfo, QueryInfo
from kvtrace.query.limits import OWN_MAX_ROWS, OWN_MEMORY, OWN_SPILL, OWN_TIMEOUT_S

_INTRO = """# Queries

Made by `scripts/gen_query_docs.py` from the headers of `queries/`; do not edit by hand.

Each query answers one question in plain SQL over a dataset. Run one with
`kvtrace query DIR NAME`, or in the duckdb CLI inside the dataset folder: `.read open.sql`,
then what `--show-sql` prints. `kvtrace query WORD` finds queries by a word, `kvtrace query NAME`
describes one. `--mode` gives JSON, CSV, Markdown or Parquet. A parameter that is not set takes its
default. Null means that the data cannot say; a zero was measured. Queries under `quality/` return
offending rows: none is good.

A query of your own is one SELECT in a `.sql` file (`kvtrace query DIR mine.sql`), in a folder
(`--queries FOLDER`, with the header and the column comments of these), or `--sql TEXT`. It reads
the tables and nothing else: no file, network, setting or statement that writes; and it may take
{memory} of memory, {spill} of temporary disk, {rows:,} rows (`--limit`) and {seconds:.0f} s
(`--timeout`).

In CSV a text that begins with `=`, `+`, `-`, `@`, a tab or a line end gets an apostrophe in front,
so that no spreadsheet runs what stood in a log; numbers never do. In Markdown every text is code.
Control characters are written as `\\u001b`. JSON and Parquet hold every text as it is.
"""
_KNOWN: Final = ("kv_bytes_per_token", "block_size_tokens")
"""Parameters that `--llm`, the audit, the logs or the blocks of a dataset give."""
_EXAMPLES: Final = {
    "BIGINT": "1000",
    "DOUBLE": "0.5",
    "VARCHAR": "TEXT",
    "BOOLEAN": "true",
    "BIGINT[]": "1000,10000",
    "DOUBLE[]": "0.5,0.9",
    "VARCHAR[]": "A,B",
}
_EXAMPLES_OF_UNITS: Final = {"_bytes": "1e12", "_s": "3600", "_per_day": "1"}
"""For numbers whose name ends so: an example of the type would be half a byte."""


def example_command(info: QueryInfo) -> str:
    """A command that runs the query, with the parameters that a dataset does not know by itself."""
    words = [f"kvtrace query DIR {info.name}"]
    words += [f"-p {one.name}={_example(one)}" for one in info.params if one.name not in _KNOWN]
    if any(one.name == _KNOWN[0] for one in info.params):
        words.append("--llm NAME")
    return " ".join(words)


def _example(param: ParamInfo) -> str:
    """The default where it can be typed as it stands, else a value of the type."""
    default = (param.default or "").strip("[]").replace(", ", ",")
    is_plain = default and default.replace(",", "").replace(".", "").replace("_", "").isalnum()
    return default if is_plain else _of_unit(param) or _EXAMPLES.get(param.type, "VALUE")


def _of_unit(param: ParamInfo) -> str | None:
    """A value of the unit that the name ends with; null for other names."""
    if param.type not in ("DOUBLE", "DOUBLE[]"):
        return None
    fits = (text for end, text in _EXAMPLES_OF_UNITS.items() if param.name.endswith(end))
    return next(fits, None)


def render_query_docs(catalog: Catalog) -> str:
    """The Markdown page over all queries of the catalogue."""
    infos = [catalog.describe(name) for name in catalog.names()]
    intro = _INTRO.format(
        memory=OWN_MEMORY, spill=OWN_SPILL, rows=OWN_MAX_ROWS, seconds=OWN_TIMEOUT_S
    )
    parts = [intro, *_index(catalog)]
    for topic, group in groupby(infos, key=lambda info: info.name.split("/")[0]):
        parts.append(f"## {topic}\n")
        parts += [_query(info) for info in group]
    return "\n".join(parts)


def _index(catalog: Catalog) -> list[str]:
    """Every topic with its queries and their questions."""
    lines = ["| topic | query | question |", "|---|---|---|"]
    for topic, names in catalog.topics().items():
        for name in names:
            anchor = name.replace("/", "")
            question = _cell(catalog.describe(name).question)
            lines.append(f"| {topic} | [`{name}`](#{anchor}) | {question} |")
    return [*lines, ""]


def _query(info: QueryInfo) -> str:
    facts = [
        f"### {info.name}\n",
        f"{info.question}\n",
        f"- Grain: {info.grain}",
        f"- Reads: {', '.join(f'`{table}`' for table in info.reads)}",
        f"- Parameters: {_params(info)}",
    ]
    facts.append(f"- Example: `{example_command(info)}`")
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
