"""From paths to tables: discover, unpack, sniff, frame, read, normalise; every record counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import polars as pl

from kvtrace.errors import InputError, Location
from kvtrace.exec.progress import Progress, SilentProgress
from kvtrace.ingest.columns import RowCollector
from kvtrace.ingest.contract import Format, ReadContext, Record, Tally
from kvtrace.ingest.decompress import DecodedStream
from kvtrace.ingest.discover import Discovery, InputFile, discover
from kvtrace.ingest.frame import FrameCounts, frame
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.normalise import Normalised, build_totals, normalise
from kvtrace.ingest.notes import implausible_lengths, not_recognised, run_notes
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import Recognition, read_head, recognise
from kvtrace.ingest.sources import FileRead, source_entry
from kvtrace.ingest.textlog.router import LogPart, LogRouter, RowSink
from kvtrace.schema.manifest import CacheDomain, FileEntry, Note, SourceEntry, Totals
from kvtrace.store.digest import digest_tables
from kvtrace.version import __version__

JUDGED_RECORDS: Final = 1000
"""From this many records a run on, too many rejects stop it; below it is a note."""
_ROW_TABLES: Final = ("requests", "samples", "transfers", "block_events")
_MAX_NAMED: Final = 10
_MAX_OFFENDERS: Final = 5


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """What changes the rows."""

    tz: str | None = None
    """IANA zone for clocks without a zone."""
    year: int | None = None
    """Year for clocks without one."""
    block_size_tokens: int | None = None
    """Forced block size."""
    max_reject_rate: float = 0.05
    """Share of records, 0..1, that may be rejected."""


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
    described = {
        "version": __version__,
        "settings": asdict(settings),
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
    run = _Run(settings, hasher, watch, tuple(formats if formats is not None else all_formats()))
    watch.start("ingest", total_bytes=sum(file.byte_size for file in discovery.files))
    reads = [read for file in discovery.files for read in run.read_file(file)]
    notes = list(discovery.skipped)
    _refuse_nothing_read(reads, notes)
    _judge_rejects(reads, run, notes)
    normalised = normalise(reads, hasher)
    if all(normalised.frames[name].is_empty() for name in _ROW_TABLES):
        raise _nothing_usable(reads, notes)
    for entry in _entries(reads):
        _check_conservation(entry)
    ingested = _ingested(normalised, reads, notes, _fingerprint(discovery, settings))
    count = len(ingested.files)
    files = f"{count:,} {'file' if count == 1 else 'files'}"
    watch.finish(f"{len(normalised.frames['requests']):,} requests from {files}")
    return ingested


def _ingested(
    normalised: Normalised, reads: list[FileRead], notes: list[Note], inputs_fingerprint: str
) -> Ingested:
    files = _entries(reads)
    sources = [source_entry(source) for source in normalised.sources]
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


class _Current:
    """Records on their way to a reader; remembers the one given last."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = records
        self.record: Record | None = None

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            self.record = record
            yield record
        self.record = None


@dataclass(slots=True)
class _Run:
    """What all files of a run share, and the first offenders among their records."""

    settings: IngestSettings
    hasher: KeyedHasher
    progress: Progress
    formats: tuple[Format, ...]

    def read_file(self, file: InputFile) -> list[FileRead]:
        """One file: its entry, and its rows if its format is known.

        A text log gives one part for every program in it that has rows; they share the entry.
        """
        try:
            raw = file.path.open("rb")
        except OSError as error:
            entry = _entry(file, f"cannot be opened ({error.strerror})")
            entry.notes.append(not_recognised(entry))
            return [FileRead(entry)]
        with raw:
            stream = DecodedStream(raw)
            collector = RowCollector(file.file_id, self.hasher)
            head, chunks, _is_whole = read_head(self._watched(stream, collector))
            recognition = recognise(head, file.name, formats=self.formats)
            if recognition.format is None:
                entry = _entry(file, recognition.reason)
                entry.compression = stream.compression
                _note_trouble(entry, stream)
                entry.notes.append(not_recognised(entry))
                return [FileRead(entry)]
            return self._read_rows(file, stream, chunks, recognition, collector)

    def _watched(self, stream: DecodedStream, collector: RowCollector) -> Iterator[bytes]:
        """The chunks, with progress told for each."""
        told_bytes = told_rejects = 0
        for chunk in stream:
            self.progress.advance(
                byte_count=stream.read_bytes - told_bytes,
                rows=chunk.count(b"\n"),
                rejected=collector.rejected - told_rejects,
            )
            told_bytes, told_rejects = stream.read_bytes, collector.rejected
            yield chunk

    def _read_rows(
        self,
        file: InputFile,
        stream: DecodedStream,
        chunks: Iterator[bytes],
        recognition: Recognition,
        collector: RowCollector,
    ) -> list[FileRead]:
        found = recognition.format
        if found is None:
            raise RuntimeError("rows need a format")
        tally = Tally(on_reject=collector.reject)
        counts = FrameCounts(new_hash=lambda: self.hasher.new("record"))
        if found.max_record_bytes is not None:
            counts.max_record_bytes = found.max_record_bytes
        records = _Current(frame(chunks, recognition.framing, counts))
        entry = _entry(file, recognition.reason, found)
        read = _OpenFile(file, entry, records, tally, collector)
        reads = (
            self._read_plain(read, found) if found.dialect is None else self._read_log(read, found)
        )
        for long in counts.too_long:
            collector.reject_long(long)
        first = reads[0].rows
        if first is not None:
            first.rejects = collector.reject_frame()
        _fill_counts(entry, counts, tally, collector)
        entry.compression, entry.content_digest = stream.compression, stream.content_digest
        entry.notes.extend(note for part in reads if part.context for note in part.context.notes)
        _note_trouble(entry, stream)
        _check_conservation(entry)
        return reads

    def _context(self, file: InputFile, tally: Tally) -> ReadContext:
        return ReadContext(
            path=file.name,
            tally=tally,
            modified_at_ns=file.modified_at_ns,
            tz=self.settings.tz,
            year=self.settings.year,
            block_size_tokens=self.settings.block_size_tokens,
            token_key=self.hasher.key_of("tokens"),
        )

    def _read_plain(self, read: _OpenFile, found: Format) -> list[FileRead]:
        """A file of one format."""
        context = self._context(read.file, read.tally)
        for row in found.read(iter(read.records), context):
            read.collector.add(row, read.records.record)
        rows = read.collector.finish(context.clock, context.late_arrivals)
        if found.is_benchmark:
            rows.requests = rows.requests.with_columns(pl.lit(True).alias("is_benchmark"))
        _note_implausible(read.entry, read.collector)
        return [FileRead(read.entry, found, context, rows)]

    def _read_log(self, read: _OpenFile, recognised: Format) -> list[FileRead]:
        """A text log: a part for each dialect that gave rows, the one with most lines first."""
        collectors: dict[str, RowCollector] = {}

        def new_sink(entry: Format) -> RowSink:
            collector = RowCollector(read.file.file_id, self.hasher)
            collectors[entry.name] = collector
            return lambda row, time: collector.add(row, read.records.record, time)

        router = LogRouter(
            [entry for entry in self.formats if entry.dialect is not None],
            read.tally,
            new_context=lambda: self._context(read.file, read.tally),
            new_sink=new_sink,
        )
        for record in read.records:
            router.take(record)
        router.finish()
        parts = [part for part in router.parts if part.used]
        parts.sort(key=lambda part: -part.used)
        reads = [self._log_part(read, router, part, collectors) for part in parts]
        if not reads:
            rows = read.collector.finish("order")
            context = self._context(read.file, read.tally)
            return [FileRead(read.entry, recognised, context, rows)]
        read.entry.format = parts[0].format.name
        return reads

    def _log_part(
        self,
        read: _OpenFile,
        router: LogRouter,
        part: LogPart,
        collectors: dict[str, RowCollector],
    ) -> FileRead:
        collector, clock = collectors[part.format.name], router.clock_of(part)
        rows = collector.finish(clock.own, line_clock=clock.lines, resolve=clock.resolve)
        _note_implausible(read.entry, collector)
        return FileRead(read.entry, part.format, part.context, rows)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file on its way to rows; the collector takes its rejects."""

    file: InputFile
    entry: FileEntry
    records: _Current
    tally: Tally
    collector: RowCollector


def _note_implausible(entry: FileEntry, collector: RowCollector) -> None:
    if collector.implausible:
        entry.notes.append(implausible_lengths(entry.path, collector))


def _entry(file: InputFile, reason: str, found: Format | None = None) -> FileEntry:
    return FileEntry(
        file_id=file.file_id,
        path=file.name,
        format=None if found is None else found.name,
        format_reason=reason,
        evidence_grade=None,
        compression="none",
        byte_size=file.byte_size,
        content_digest="",
        rows_in=0,
        kept=0,
        rejected=0,
        blank=0,
        used=0,
        ignored=0,
    )


def _fill_counts(
    entry: FileEntry, counts: FrameCounts, tally: Tally, collector: RowCollector
) -> None:
    entry.rows_in, entry.blank = counts.rows_in, counts.blank
    entry.used, entry.ignored = tally.used, sum(tally.ignored.values())
    entry.kept = entry.used + entry.ignored
    entry.ignored_by_reason = dict(sorted(tally.ignored.items()))
    entry.rejected = collector.rejected
    entry.rejected_by_reason = dict(sorted(collector.rejected_by_reason.items()))


def _note_trouble(entry: FileEntry, stream: DecodedStream) -> None:
    if stream.trouble is not None:
        code, message = stream.trouble
        entry.notes.append(Note(code=code, message=message, path=entry.path))


def _check_conservation(entry: FileEntry) -> None:
    """Every record has one outcome; a reader that loses one is a bug."""
    outcomes = entry.used + entry.ignored + entry.rejected + entry.blank
    if entry.rows_in != outcomes or entry.kept != entry.used + entry.ignored:
        raise RuntimeError(
            f"the reader of {entry.format} lost count of {entry.path}: {entry.rows_in} records in, "
            f"{entry.used} used, {entry.ignored} ignored, {entry.rejected} rejected, "
            f"{entry.blank} blank"
        )


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
            hint="`kvtrace formats` lists what can be read and how to switch each log on",
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
    return f"{entry.format}, but it holds no record of a request or an observation"


def _judge_rejects(reads: list[FileRead], run: _Run, notes: list[Note]) -> None:
    """Stop past the accepted share of rejects; in a small run only say it."""
    entries = _entries(reads)
    records = sum(entry.rows_in - entry.blank for entry in entries)
    rejected = sum(entry.rejected for entry in entries)
    limit = run.settings.max_reject_rate
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
