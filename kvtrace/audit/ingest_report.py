"""The document that `kvtrace ingest --json` prints: what was read, what was lost, the totals."""

from __future__ import annotations

from typing import Final

import msgspec

from kvtrace.audit.jsonio import document_schema
from kvtrace.schema.manifest import FileEntry, Grade, Manifest, Note, SourceEntry, Totals

INGEST_SCHEMA_VERSION: Final = 1
INGEST_SCHEMA_TITLE: Final = "kvtrace ingest report"


class IngestFile(msgspec.Struct, kw_only=True):
    """One input file: rows_in = kept + rejected + blank, kept = used + ignored."""

    path: str
    format: str | None
    """Registered format name; null when not recognised."""
    evidence_grade: Grade | None
    rows_in: int
    kept: int
    rejected: int
    blank: int
    used: int
    ignored: int
    notes: list[Note]


class IngestReport(msgspec.Struct, kw_only=True):
    """The contract for scripts; sums are over known rows and null where none is known."""

    schema_version: int
    files: list[IngestFile]
    totals: Totals
    sources: list[SourceEntry]
    digest: str
    """Logical digest of the dataset."""


def build_ingest_report(manifest: Manifest) -> IngestReport:
    """The ingest document of a dataset."""
    return IngestReport(
        schema_version=INGEST_SCHEMA_VERSION,
        files=[_ingest_file(entry) for entry in manifest.files],
        totals=manifest.totals,
        sources=manifest.sources,
        digest=manifest.digest,
    )


def dump_ingest_report(report: IngestReport) -> bytes:
    """UTF-8 JSON: keys sorted, newline at the end."""
    return msgspec.json.encode(report, order="sorted") + b"\n"


def ingest_schema() -> dict[str, object]:
    """JSON Schema of the document, as shipped in `ingest.schema.json`."""
    return document_schema(IngestReport, title=INGEST_SCHEMA_TITLE)


def _ingest_file(entry: FileEntry) -> IngestFile:
    return IngestFile(
        path=entry.path,
        format=entry.format,
        evidence_grade=entry.evidence_grade,
        rows_in=entry.rows_in,
        kept=entry.kept,
        rejected=entry.rejected,
        blank=entry.blank,
        used=entry.used,
        ignored=entry.ignored,
        notes=entry.notes,
    )
