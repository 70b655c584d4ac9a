"""What each file is, without reading it whole: its format, what it gives, what would give more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from kvtrace.exec.progress import SilentProgress
from kvtrace.ingest.capabilities import answered, question
from kvtrace.ingest.contract import Format
from kvtrace.ingest.files.discover import discover
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.readfile import FileReader, IngestSettings
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sources import FileRead, grade_of
from kvtrace.schema.manifest import Grade, Note
from kvtrace.schema.tables import REQUESTS

_NOT_TO_BE_MAPPED: Final = ("left out: ", "a Python pickle")
"""How the reasons begin of files that were not looked into, and of programs."""
_NO_SALT: Final = b"inspection stores no hash"
_ORDER: Final[tuple[Grade, ...]] = ("A", "B", "C", "L")
_HELPERS: Final = frozenset(
    {"request_key", "source_id", "is_headline", "clock", "flags", "is_benchmark", "line"}
)


class Inspection(msgspec.Struct, kw_only=True):
    """One file: judged by its start, up to 64 KiB."""

    path: str
    format: str | None
    """Registered name; of several programs in one log, the one with most lines. Null: unknown."""
    confidence: float
    """0..1 as the format says; below 0.5 a file is not read."""
    why: str
    evidence_grade: Grade | None
    """What the start of this file proves: A, B, C or L."""
    supplies: list[str]
    """Request columns and sample metrics with a known value in the start of the file."""
    missing: list[str]
    """Questions that it leaves open and another log or flag would answer."""
    flags: list[str]
    """For each missing question, what to switch on."""

    @property
    def may_be_mapped(self) -> bool:
        """Whether a mapping might read it: it was looked into, and is no program."""
        return not self.why.startswith(_NOT_TO_BE_MAPPED)


def inspect_paths(
    inputs: Sequence[Path | str], *, settings: IngestSettings | None = None
) -> list[Inspection]:
    """What every file of the inputs is, in order of names.

    Raises:
        InputError: KVT-I001, an input does not exist.
    """
    discovery = discover(inputs)
    reader = FileReader(
        settings or IngestSettings(),
        KeyedHasher(_NO_SALT),
        SilentProgress(),
        all_formats(),
        reads_heads=True,
    )
    found = [_inspection(reader.read(file)) for file in discovery.files]
    return found + [_skipped(note) for note in discovery.skipped]


def _skipped(note: Note) -> Inspection:
    return Inspection(
        path=note.path or "",
        format=None,
        confidence=0.0,
        why=note.message,
        evidence_grade=None,
        supplies=[],
        missing=[],
        flags=[],
    )


def _inspection(reads: list[FileRead]) -> Inspection:
    entry, first = reads[0].entry, reads[0]
    formats = [read.format for read in reads if read.format is not None]
    rows = [read.rows for read in reads if read.rows is not None]
    missing = _missing(formats, answered(rows))
    grades = [grade_of(read) for read in reads if read.rows is not None and read.rows.holds_rows]
    order = [grade for grade in _ORDER if grade in grades]
    return Inspection(
        path=entry.path,
        format=entry.format,
        confidence=round(first.confidence, 3),
        why=entry.format_reason,
        evidence_grade=order[0] if order else None,
        supplies=_supplied(reads),
        missing=list(missing),
        flags=list(missing.values()),
    )


def _supplied(reads: list[FileRead]) -> list[str]:
    """Columns and metrics with a value, in the order of the schema, then metrics by name."""
    columns: set[str] = set()
    metrics: set[str] = set()
    for read in reads:
        if read.rows is None:
            continue
        frame = read.rows.requests
        columns.update(
            name
            for name in REQUESTS.polars_schema()
            if name not in _HELPERS and frame[name].null_count() < len(frame)
        )
        if len(read.rows.block_counts):
            metrics.add("block_keys")
        metrics.update(read.rows.samples.filter(pl.col("value").is_not_null())["metric"])
        if not read.rows.transfers.is_empty():
            metrics.add("transfers")
        if not read.rows.block_events.is_empty():
            metrics.add("block_events")
    ordered = [name.removesuffix("_key") for name in REQUESTS.polars_schema() if name in columns]
    return ordered + sorted(metrics)


def _missing(formats: list[Format], has: set[str]) -> dict[str, str]:
    """Question → flag, of what the formats together leave open and this file does not answer."""
    asked: dict[str, str] = {}
    for found in formats:
        for name, flag in found.missing.items():
            if name not in has:
                asked.setdefault(question(name), flag)
    return asked
