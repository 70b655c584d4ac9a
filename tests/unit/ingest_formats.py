"""A made-up format for tests of the ingest core: JSON lines that are RequestRow fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kvtrace.ingest.contract import (
    Format,
    Guess,
    Head,
    ReadContext,
    Record,
    RequestRow,
    Row,
)
from kvtrace.ingest.pipeline import Ingested, ingest_paths
from kvtrace.ingest.readfile import IngestSettings
from kvtrace.schema.manifest import Clock

SALT = b"salt of the tests"


def made_up(
    name: str,
    *,
    clock: Clock = "utc",
    block_size: int | None = None,
    scope: Any = "file",
    resolution_ns: int | None = None,
    supplies: tuple[str, ...] = (),
) -> Format:
    """A format whose first line has `"format": name`; `{"skip": …}` lines are ignored."""

    def sniff(head: Head) -> Guess | None:
        is_own = any(entry.get("format") == name for entry in head.json_objects)
        return Guess(0.9, f"it says {name}") if is_own else None

    def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
        for record in records:
            try:
                fields = json.loads(record.data)
            except ValueError:
                context.tally.reject(record, "invalid_json")
                continue
            if "format" in fields or "skip" in fields:
                context.tally.ignore("not_a_request")
                continue
            context.tally.use()
            fields["flags"] = tuple(fields.get("flags", ()))
            yield RequestRow(offset=record.offset, line=record.line, **fields)
        context.clock = clock
        context.clock_resolution_ns = resolution_ns
        context.found_block_size_tokens = block_size
        context.block_scope = scope

    return Format(
        name=name,
        title=name,
        framing="lines",
        best_grade="A",
        supplies=supplies,
        missing={},
        versions="made up",
        sniff=sniff,
        read=read,
    )


def write_rows(path: Path, name: str, rows: Iterable[dict[str, object]]) -> Path:
    """A file of the made-up format."""
    lines = [{"format": name}, *rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def ingest(
    paths: Iterable[Path],
    *formats: Format,
    salt: bytes = SALT,
    settings: IngestSettings | None = None,
) -> Ingested:
    """Ingest with the made-up formats only."""
    return ingest_paths(
        list(paths), settings=settings or IngestSettings(), salt=salt, formats=formats
    )
