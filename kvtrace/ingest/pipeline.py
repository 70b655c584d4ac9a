"""From paths to tables: discover, unpack, sniff, frame, read, normalise; every record counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from kvtrace.errors import InputError, Location
from kvtrace.exec.progress import Progress, SilentProgress
from kvtrace.ingest.contract import Format
from kvtrace.ingest.files.discover import Discovery, discover
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.mapping import unused_mapping
from kvtrace.ingest.modelnames import HIDDEN_NOTE
from kvtrace.ingest.normalise import Normalised, build_totals, normalise
from kvtrace.ingest.notes import run_notes
from kvtrace.ingest.readfile import FileReader, IngestSettings, check_conservation
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sources import FileRead, source_entry
from kvtrace.schema.manifest import CacheDomain, FileEntry, Note, SourceEntry, Totals
from kvtrace.store.digest import digest_tables
from kvtrace.version import __version__

JUDGED_RECORDS: Final = 1000
"""From this many records a run on, too many rejects stop it; below it is a note."""
_ROW_TABLES: Final = ("requests", "samples", "transfers", "block_events")
_MAX_NAMED: Final = 10
_MAX_OFFENDERS: Final = 5


@dataclass(frozen=True, slots=True)
class Ingested:
    """The tables of a dataset and what they consist of."""

    frames: dict[str, pl.DataFrame]
    """requests, blocks, keys, samples, transfers, block_events, rejects, in total order."""
    files: list[FileEntry]
    sources: list[SourceEntry]
    domains: list[CacheDomain]
    totals: Totals
    fingerprint: str
    digest: str
    """Logical digest of the frames."""

    @property
    def notes(self) -> list[Note]:
        """Notes of the run, its files and its sources, one a code."""
        return self.totals.notes


def fingerprint(inputs: Sequence[Path | str], settings: IngestSettings) -> str:
    """Digest of what decides the dataset, without reading a file: equal means reusable.

    Names, sizes and modification times of the files, the settings and the version of kvtrace.
    """
    return _fingerprint(discover(inputs), settings)


def _fingerprint(discovery: Discovery, settings: IngestSettings) -> str:
    brought = sorted(
        f"{one.name} of {one.distribution}" for one in all_formats() if one.distribution
    )
    described = {
        "version": __version__,
        "settings": settings.described(),
        **({"plugins": brought} if brought else {}),
        "files": [
            [file.name, file.byte_size, file.modified_at_ns, file.changed_at_ns]
            for file in discovery.files
        ],
    }
    text = json.dumps(described, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def ingest_paths(
    inputs: Sequence[Path | str],
    *,
    settings: IngestSettings | None = None,
    salt: bytes,
    progress: Progress | None = None,
    formats: Sequence[Format] | None = None,
) -> Ingested:
    """Read everything that the inputs mean.

    Raises:
        InputError: KVT-I001 no such path, KVT-I002 no file recognised, KVT-I003 no usable row,
            KVT-I004 too many records rejected.
    """
    settings = settings or IngestSettings()
    watch = progress or SilentProgress()
    discovery = discover(inputs)
    hasher = KeyedHasher(salt)
    known = tuple(formats if formats is not None else all_formats())
    reader = FileReader(settings, hasher, watch, known)
    watch.start("ingest", total_bytes=sum(file.byte_size for file in discovery.files))
    reads = [read for file in discovery.files for read in reader.read(file)]
    if settings.mapping is not None and len(reader.misfits) == len(discovery.files):
        raise unused_mapping(settings.mapping, reader.misfits)
    notes = list(discovery.skipped)
    _refuse_nothing_read(reads, notes)
    _judge_rejects(reads, settings.max_reject_rate, notes)
    normalised = normalise(reads, hasher)
    if all(normalised.frames[name].is_empty() for name in _ROW_TABLES):
        raise _nothing_usable(reads, notes)
    for entry in _entries(reads):
        check_conservation(entry)
    ingested = _ingested(normalised, reads, notes, _fingerprint(discovery, settings))
    count = len(ingested.files)
    files = f"{count:,} {'file' if count == 1 else 'files'}"
    watch.finish(f"{len(normalised.frames['requests']):,} requests from {files}")
    return ingested


def _ingested(
    normalised: Normalised, reads: list[FileRead], notes: list[Note], inputs_fingerprint: str
) -> Ingested:
    files = _entries(reads)
    names = normalised.names
    sources = [source_entry(source, names) for source in normalised.sources]
    if names.hidden:
        notes = [*notes, Note(code=HIDDEN_NOTE, message=names.words())]
    rejected = sum(entry.rejected for entry in files)
    return Ingested(
        frames=normalised.frames,
        files=files,
        sources=sources,
        domains=normalised.domains,
        totals=build_totals(normalised, rejected=rejected, notes=run_notes(notes, files, sources)),
        fingerprint=inputs_fingerprint,
        digest=digest_tables(normalised.frames),
    )


def _entries(reads: list[FileRead]) -> list[FileEntry]:
    """The files, each once: a log of several programs was read into several parts."""
    return list({read.entry.file_id: read.entry for read in reads}.values())


def _refuse_nothing_read(reads: list[FileRead], notes: list[Note]) -> None:
    """Stop when no file has a usable record, before anything else is judged."""
    if not any(read.entry.used for read in reads):
        raise _nothing_usable(reads, notes)


def _nothing_usable(reads: list[FileRead], notes: list[Note]) -> InputError:
    """The error that names every file and why it gives nothing."""
    entries = _entries(reads)
    reasons = [f"{entry.path}: {_why_empty(entry)}" for entry in entries]
    reasons += [f"{note.path}: {note.message}" for note in notes]
    more = len(reasons) - _MAX_NAMED
    cause = "\n".join(reasons[:_MAX_NAMED] + ([f"and {more} more"] if more > 0 else []))
    if not any(entry.format for entry in entries):
        return InputError(
            "KVT-I002",
            "no input file was recognised" if entries else "there is no file to read",
            cause=cause or "the input is an empty folder",
            hint="`kvtrace formats` lists what can be read and how to switch each log on; for JSON"
            " or CSV of your own `kvtrace sniff FILE --suggest-mapping -o map.toml` writes a"
            " mapping for `--mapping map.toml`",
        )
    return InputError(
        "KVT-I003",
        "no usable record was found",
        cause=cause,
        hint="`kvtrace formats` shows what each format must hold",
    )


def _why_empty(entry: FileEntry) -> str:
    if entry.format is None:
        return entry.format_reason
    if entry.rejected:
        reasons = ", ".join(f"{name} {n}" for name, n in entry.rejected_by_reason.items())
        return f"{entry.format}, all {entry.rejected} records rejected ({reasons})"
    for note in entry.notes:
        if note.severity == "warning":  # formats that are known and cannot be measured say why
            return f"{entry.format}: {note.message}"
    return f"{entry.format}, but it holds no record of a request or an observation"


def _judge_rejects(reads: list[FileRead], limit: float, notes: list[Note]) -> None:
    """Stop past the accepted share of rejects; in a small run only say it."""
    entries = _entries(reads)
    records = sum(entry.rows_in - entry.blank for entry in entries)
    rejected = sum(entry.rejected for entry in entries)
    if rejected <= limit * records:
        return
    share = f"{rejected:,} of {records:,} records ({rejected / records:.1%})"
    if records < JUDGED_RECORDS:
        message = f"{share} were rejected; the limit of {limit:.1%} is judged from 1 000 records on"
        notes.append(Note(code="reject_rate_high", message=message))
        return
    offenders = _offenders(reads)
    raise InputError(
        "KVT-I004",
        f"{share} cannot be used (limit {limit:.1%})",
        where=offenders[0] if offenders else None,
        cause="\n".join(f"first: {place}" for place in offenders),
        hint=(
            "the log may be cut or of another version; "
            f"`--max-reject-rate {rejected / records:.2f}` accepts it"
        ),
    )


def _offenders(reads: list[FileRead]) -> list[Location]:
    found: list[Location] = []
    for read in reads:
        if read.rows is None:
            continue
        for row in read.rows.rejects.head(_MAX_OFFENDERS).iter_rows(named=True):
            detail = row["reason"] if row["detail"] is None else f"{row['reason']}: {row['detail']}"
            found.append(Location(read.entry.path, row["line"], detail))
    return found[:_MAX_OFFENDERS]
