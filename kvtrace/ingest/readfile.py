"""One file: unpack, sniff, frame, read; every record counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Final

import polars as pl

from kvtrace.exec.progress import Progress
from kvtrace.ingest.columns import RowCollector
from kvtrace.ingest.contract import Format, Framing, ReadContext, Record, Tally
from kvtrace.ingest.files.decompress import DecodedStream
from kvtrace.ingest.files.discover import InputFile
from kvtrace.ingest.files.frame import FrameCounts, frame, line_blocks
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.mapping import Mapping, recognise_mapped
from kvtrace.ingest.notes import implausible_lengths, not_recognised
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.prompts.tokenizer import describe_tokenizer
from kvtrace.ingest.sniff import Recognition, read_head, recognise
from kvtrace.ingest.sources import FileRead
from kvtrace.ingest.textlog.router import LogPart, LogRouter, RowSink
from kvtrace.schema.manifest import FileEntry, Note
from kvtrace.units import MIB

_MAX_HELD_BYTES: Final = 64 * MIB


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
    allow_inert_pickle: bool = False
    """Read request dumps that are pickles, in a process that imports nothing."""
    tokenizer: str | None = None
    """Path of a local tokenizer for prompts that are text."""
    bytes_per_token: float | None = None
    """For prompts that are text where there is no tokenizer; None: assumed."""
    hash_prompts: bool = True
    """Make block keys of prompts that stand in the logs; else prompts are not looked at."""
    mapping: Mapping | None = None
    """How to read files that a mapping fits; it comes before the known formats."""

    def described(self) -> dict[str, str | int | float | bool | None]:
        """The settings as plain values; of mapping and tokenizer their digests.

        Raises:
            UsageError: KVT-I021, the tokenizer's file cannot be read.
        """
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "mapping"}
        return {
            **plain,
            "mapping": None if self.mapping is None else self.mapping.digest,
            "tokenizer": None if self.tokenizer is None else describe_tokenizer(self.tokenizer),
        }


class _Current:
    """Records on their way to a reader; remembers the one given last.

    While rows are held back to measure their prompts, the last ones.
    """

    def __init__(self, records: Iterable[Record], hasher: PromptHasher | None) -> None:
        self._records = records
        self._hasher = hasher
        self._held: deque[Record] = deque()
        self._held_bytes = 0
        self.record: Record | None = None

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            self.record = record
            if self._hasher is not None and self._hasher.is_holding:
                self._hold(record)
            elif self._held:
                self._held.clear()
                self._held_bytes = 0
            yield record
        self.record = None

    def _hold(self, record: Record) -> None:
        self._held.append(record)
        self._held_bytes += len(record.data)
        while len(self._held) > 1 and self._held_bytes > _MAX_HELD_BYTES:
            self._held_bytes -= len(self._held.popleft().data)

    def behind(self, offset: int) -> Record | None:
        """The record that a row is of: the one given last, or one held."""
        while self._held and self._held[0].offset < offset:
            self._held_bytes -= len(self._held.popleft().data)
        if self._held and self._held[0].offset == offset:
            return self._held[0]
        return self.record


@dataclass(slots=True)
class FileReader:
    """Reads files: what they all share in one run."""

    settings: IngestSettings
    hasher: KeyedHasher
    progress: Progress
    formats: tuple[Format, ...]
    misfits: list[tuple[str, str]] = field(default_factory=list)
    """Names of the files that the mapping does not fit, and why."""
    reads_heads: bool = False
    """Read only the start of each file, as far as sniffing looked: enough to say what it gives."""

    def read(self, file: InputFile) -> list[FileRead]:
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
            if self.reads_heads:
                chunks = iter((head,))
            recognition = self._recognised(file, head)
            if recognition.format is None:
                entry = _entry(file, recognition.reason)
                entry.compression = stream.compression
                _note_trouble(entry, stream)
                entry.notes.append(not_recognised(entry))
                return [FileRead(entry, confidence=recognition.confidence)]
            return self._read_rows(file, stream, chunks, recognition, collector)

    def _recognised(self, file: InputFile, head: bytes) -> Recognition:
        """What the file is: the mapping's if it fits, else of a known format."""
        mapped = None
        if self.settings.mapping is not None:
            mapped = recognise_mapped(self.settings.mapping, head, file.name)
            if mapped.format is not None:
                return mapped
            self.misfits.append((file.name, mapped.reason))
        found = recognise(
            head,
            file.name,
            formats=self.formats,
            allow_inert_pickle=self.settings.allow_inert_pickle,
        )
        if mapped is None or found.format is not None:
            return found
        return replace(found, reason=f"{found.reason}; {mapped.reason}")

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
        entry = _entry(file, recognition.reason, found)
        read = _OpenFile(file, entry, chunks, counts, tally, collector)
        if found.dialect is None:
            reads = self._read_plain(read, found, recognition.framing)
        else:
            reads = self._read_log(read, found)
        for long in counts.too_long:
            collector.reject_long(long)
        first = reads[0].rows
        if first is not None:
            first.rejects = collector.reject_frame()
        _fill_counts(entry, counts, tally, collector)
        entry.compression, entry.content_digest = stream.compression, stream.content_digest
        entry.notes.extend(note for part in reads if part.context for note in part.context.notes)
        _note_trouble(entry, stream)
        check_conservation(entry)
        for part in reads:
            part.confidence = recognition.confidence
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
            prompt_hasher=self._prompt_hasher(),
        )

    def _prompt_hasher(self) -> PromptHasher | None:
        settings = self.settings
        if not settings.hash_prompts:
            return None
        return PromptHasher(
            self.hasher.key_of("tokens"),
            block_tokens=settings.block_size_tokens,
            tokenizer=settings.tokenizer,
            bytes_per_token=settings.bytes_per_token,
        )

    def _read_plain(self, read: _OpenFile, found: Format, framing: Framing) -> list[FileRead]:
        """A file of one format."""
        context = self._context(read.file, read.tally)
        records = _Current(frame(read.chunks, framing, read.counts), context.prompt_hasher)
        for row in found.read(iter(records), context):
            read.collector.add(row, records.behind(row.offset))
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
            return lambda row, time: collector.add(row, router.record, time)

        router = LogRouter(
            [entry for entry in self.formats if entry.dialect is not None],
            read.tally,
            new_context=lambda: self._context(read.file, read.tally),
            new_sink=new_sink,
        )
        router.take_blocks(line_blocks(read.chunks, read.counts), read.counts)
        router.finish()
        parts = [part for part in router.parts if part.used]
        parts.sort(key=lambda part: -part.used)
        reads = [self._log_part(read, router, part, collectors) for part in parts]
        if not reads:
            rows = read.collector.finish("order")
            context = self._context(read.file, read.tally)
            return [FileRead(read.entry, recognised, context, rows)]
        read.entry.format = parts[0].format.name
        read.entry.format_reason = _reason(parts)
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
        if part.context.found_block_size_tokens is None:
            rows.forget_blocks()  # rows leave before it is known whether enough have blocks
        _note_implausible(read.entry, collector)
        return FileRead(read.entry, part.format, part.context, rows)


def _reason(parts: list[LogPart]) -> str:
    """Why a log was read as it was: whose lines it holds."""
    first, *others = parts
    also = ", ".join(f"{part.format.name} ({part.used:,})" for part in others)
    said = f"{first.lines:,} lines of this program, {first.used:,} of them with data"
    return f"{said}; also lines of {also}" if also else said


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file on its way to rows; the collector takes its rejects."""

    file: InputFile
    entry: FileEntry
    chunks: Iterator[bytes]
    counts: FrameCounts
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


def check_conservation(entry: FileEntry) -> None:
    """Every record has one outcome; a reader that loses one is a bug."""
    outcomes = entry.used + entry.ignored + entry.rejected + entry.blank
    if entry.rows_in != outcomes or entry.kept != entry.used + entry.ignored:
        raise RuntimeError(
            f"the reader of {entry.format} lost count of {entry.path}: {entry.rows_in} records in, "
            f"{entry.used} used, {entry.ignored} ignored, {entry.rejected} rejected, "
            f"{entry.blank} blank"
        )
