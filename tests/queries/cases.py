"""The YAML cases of `queries/*.sql`, and how they become tables.

A case lists requests (with `blocks`, `tail_tokens` and `cache_domain` as the test traces have
them), samples, transfers, block events, parameters, and the rows to expect; stays of blocks are
built from the events unless the case has `block_stays`; `columns` narrows the rows to some columns,
`ctes` gives the rows of the CTEs that carry the idea.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import yaml

from kvtrace.duckdb_session import Session
from kvtrace.reuse.stays import build_block_stays
from kvtrace.schema.facts import BLOCK_STAYS, CONTINUATIONS, REUSE
from kvtrace.schema.tables import BLOCK_EVENTS, SAMPLES, TABLES, TRANSFERS
from tests.traces import Traced, create_tables, tables

CASES = Path(__file__).parent / "cases"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # that of C, where it is built
SAMPLE_DEFAULTS = {"source_id": 0, "clock": "relative"}
TRANSFER_DEFAULTS = {"source_id": 0, "clock": "utc", "direction": "load"}
EVENT_DEFAULTS = {"position": 0, "source_id": 0, "clock": "utc", "instance": "a"}
STAY_DEFAULTS = {"event_key": 0, "position": 0, "instance": "a", "block_key": 1}


class Case(NamedTuple):
    """One case of one query."""

    query: str
    name: str
    spec: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.query}: {self.name}"


def load_cases() -> list[Case]:
    """All cases, sorted by file."""
    found = []
    for file in sorted(CASES.glob("*/*.yaml")):
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=LOADER)
        assert document["query"] == f"{file.parent.name}/{file.stem}", file
        found += [Case(document["query"], spec.pop("name"), spec) for spec in document["cases"]]
    return found


def fill(session: Session, spec: dict[str, Any]) -> None:
    """Create every table of the dataset from a case; what it does not name is empty."""
    traced = [
        Traced(
            blocks=row.pop("blocks", ()),
            tail_tokens=row.pop("tail_tokens", 0),
            cache_domain=row.pop("cache_domain", 0),
            columns=row,
        )
        for row in (dict(row) for row in spec.get("requests", []))
    ]
    frames = tables(traced, block_size_tokens=spec.get("block_size_tokens", 1))
    samples = [{**SAMPLE_DEFAULTS, **row} for row in spec.get("samples", [])]
    frames["samples"] = pl.DataFrame(samples, schema=SAMPLES.polars_schema())
    moves = [{**TRANSFER_DEFAULTS, **row} for row in spec.get("transfers", [])]
    frames["transfers"] = pl.DataFrame(moves, schema=TRANSFERS.polars_schema())
    events = [{**EVENT_DEFAULTS, **row} for row in spec.get("block_events", [])]
    frames["block_events"] = pl.DataFrame(events, schema=BLOCK_EVENTS.polars_schema())
    frames["block_stays"] = build_block_stays(frames["block_events"])
    if "block_stays" in spec:
        stays = [{**STAY_DEFAULTS, **row} for row in spec["block_stays"]]
        frames["block_stays"] = pl.DataFrame(stays, schema=BLOCK_STAYS.polars_schema())
    for table in (REUSE, CONTINUATIONS):
        if table.name in spec:
            frames[table.name] = pl.DataFrame(spec[table.name], schema=table.polars_schema())
    for name, table in TABLES.items():
        if table.is_derived and name in spec:
            frames[name] = pl.DataFrame(spec[name], schema=table.polars_schema())
    create_tables(session, frames)


def cte_sql(sql: str, cte: str, columns: list[str]) -> str:
    """The query cut before its result, reading a CTE instead."""
    head = sql[: sql.rindex("\nselect\n")]
    return f"{head}\nselect {', '.join(columns)} from {cte} order by all"
