"""What a format module is: sniff, fields, read. No format module imports another one.

A reader gets framed records and yields typed rows. It must give every record exactly one outcome on
its tally (used, ignored with a reason, rejected with a reason); blank records never reach it. The
pipeline checks rows_in = used + ignored + rejected + blank for every file and fails loudly if a
reader loses one.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from kvtrace.ingest.prompts import PromptHasher
from kvtrace.schema.arrays import BoolArray, IntArray
from kvtrace.schema.manifest import Clock, Grade, Note, NoteSeverity, Status

Framing = Literal["lines", "csv", "json", "frames", "document"]
"""lines: a physical line a record; csv: a record may hold quoted newlines; json: array elements or
one document; frames: 4-byte big-endian length, then that many bytes; document: the whole file."""
BlockChange = Literal["stored", "removed", "moved", "cleared"]
Medium = Literal["device", "host", "disk", "remote"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One framed record: its bytes without line end, and where it stands."""

    offset: int
    """Byte offset in the decompressed file."""
    line: int
    """Physical line where it starts, from 1."""
    data: bytes
    terminated: bool = True
    """False for a last record that the file ends in without a line end: it may be cut."""


class Producer(NamedTuple):
    """Whose records count tokens the same way."""

    scope: str
    """Name of the instrumentation; empty: it gives none."""
    version: str
    provider: str
    """Whose counts it passes on; empty: it does not say."""


class Unsettled(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A prompt count that was read as including the cache, though its record does not say so."""

    producer: Producer
    left_out_tokens: int
    """Cached and written tokens: what the count lacks if it leaves them out."""
    is_by_spec: bool
    """The names are of a convention that includes the cache; else that is assumed."""


class RequestRow(msgspec.Struct, gc=False, kw_only=True):
    """One request as a format sees it: ids in the clear (the pipeline hashes them), times in ns.

    Null is unknown. `block_keys` are prefix-chained unsigned 64-bit keys, one a block, in order.
    """

    offset: int
    line: int
    request_id: str | None = None
    session_id: str | None = None
    parent_id: str | None = None
    turn: int | None = None
    tenant: str | None = None
    """Team, organisation, project, API key or consumer."""
    user: str | None = None
    """The end user, as the source tells one from the tenant."""
    llm: str | None = None
    adapter: str | None = None
    request_type: str | None = None
    arrived_at_ns: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    cached_device_tokens: int | None = None
    cached_host_tokens: int | None = None
    cached_disk_tokens: int | None = None
    cached_remote_tokens: int | None = None
    cache_write_tokens: int | None = None
    computed_tokens: int | None = None
    output_tokens: int | None = None
    queue_ns: int | None = None
    prefill_ns: int | None = None
    ttft_ns: int | None = None
    ttft_from: Literal["arrival", "scheduled", "client"] | None = None
    tpot_ns: int | None = None
    e2e_ns: int | None = None
    status: Status = "ok"
    is_benchmark: bool = False
    flags: tuple[str, ...] = ()
    block_keys: list[int] | array[int] | None = None
    unsettled: Unsettled | None = None
    """Set where only other records can tell what the prompt count includes; then the block keys
    are those of the longer prompt."""


class Metric(msgspec.Struct, gc=False, kw_only=True, frozen=True):
    """One metric of an observation; see the samples table for the vocabulary."""

    metric: str
    value: float | None
    unit: str
    hit_unit: str | None = None
    window: str | None = None
    window_ns: int | None = None
    numerator: float | None = None
    denominator: float | None = None


class SampleRow(msgspec.Struct, gc=False, kw_only=True):
    """One engine-wide observation with all its metrics."""

    offset: int
    line: int
    observed_at_ns: int | None
    engine: str | None
    metrics: list[Metric]


class TransferRow(msgspec.Struct, gc=False, kw_only=True):
    """One observed KV movement; see the transfers table."""

    offset: int
    line: int
    request_id: str | None
    started_at_ns: int | None
    direction: Literal["load", "store", "hand_off"]
    path: str | None
    moved_bytes: int | None
    moved_tokens: int | None
    duration_ns: int | None
    ranks: int | None


class BlockEventRow(msgspec.Struct, gc=False, kw_only=True):
    """One change of one KV block that an engine reported; see the block_events table.

    `block_key` and `parent_key` are unsigned 64-bit and keyed (`context.token_key`): of the chained
    token ids where the event carries them, else of the engine's own block hash. A record with
    several blocks gives several rows with the same offset, in order.
    """

    offset: int
    line: int
    observed_at_ns: int | None
    instance: str | None
    sequence: int | None
    change: BlockChange
    block_key: int | None = None
    parent_key: int | None = None
    block_tokens: int | None = None
    medium: Medium | None = None
    from_medium: Medium | None = None


Row = RequestRow | SampleRow | TransferRow | BlockEventRow


@dataclass(slots=True)
class Tally:
    """Counts of one file, and its first offenders. `reject` keeps where and why, never the text."""

    used: int = 0
    ignored: dict[str, int] = field(default_factory=dict)
    rejects: list[tuple[Record, str, str | None]] = field(default_factory=list)
    on_reject: Callable[[Record, str, str | None], None] | None = None

    def use(self, records: int = 1) -> None:
        """The record was understood and contributes to a row."""
        self.used += records

    def ignore(self, reason: str) -> None:
        """The record was understood and carries nothing wanted (noise line, health check, copy)."""
        self.ignored[reason] = self.ignored.get(reason, 0) + 1

    def ignore_many(self, reason: str, records: int) -> None:
        """As many records, each as by `ignore`."""
        if records:
            self.ignored[reason] = self.ignored.get(reason, 0) + records

    def reject(self, record: Record, reason: str, detail: str | None = None) -> None:
        """The record is unusable. `detail` names field and cause, never a value from the record."""
        if self.on_reject is not None:
            self.on_reject(record, reason, detail)
        else:
            self.rejects.append((record, reason, detail))


@dataclass(frozen=True, slots=True)
class LateArrivals:
    """Arrivals of a reader that learns its clock from the whole file; they replace the rows' own.

    One entry a request row, in the order in which the rows came.
    """

    arrived_at_ns: IntArray
    is_known: BoolArray
    is_flagged: BoolArray
    flag: str
    """The flag of the rows of `is_flagged`."""


@dataclass(slots=True)
class CacheProofs:
    """Calls of one producer that prove by themselves what its prompt count includes."""

    exclusive: int = 0
    """More cached and written than prompt tokens, or a total that only fits so."""
    exclusive_line: int = 0
    """Line of the first of them."""
    inclusive: int = 0
    inclusive_line: int = 0

    def add(self, line: int, *, is_inclusive: bool) -> None:
        """Count a call."""
        if is_inclusive:
            self.inclusive += 1
            self.inclusive_line = self.inclusive_line or line
        else:
            self.exclusive += 1
            self.exclusive_line = self.exclusive_line or line


@dataclass(slots=True)
class ReadContext:
    """What a reader knows and what it leaves behind; one per file."""

    path: str
    tally: Tally
    modified_at_ns: int
    tz: str | None = None
    """IANA zone for naive clocks (`--tz`); None: taken as UTC, with a note."""
    year: int | None = None
    """Year for clocks without one (`--year`)."""
    block_size_tokens: int | None = None
    """Forced block size (`--block-size`)."""
    token_key: bytes | None = None
    """Key of this run for hashing token ids into block keys; None: ids are only counted."""
    prompt_hasher: PromptHasher | None = None
    """Makes block keys of prompts (text, messages, token ids); None: prompts are not read."""
    # Filled by the reader:
    clock: Clock = "order"
    clock_resolution_ns: int | None = None
    clock_reason: str | None = None
    found_block_size_tokens: int | None = None
    block_size_reason: str | None = None
    partial_tail: Literal["counted", "dropped", "none"] = "counted"
    block_ids: Literal["chained", "content_chained"] = "chained"
    block_scope: Literal["file", "session", "global"] = "file"
    layer: str | None = None
    """Part of the program that wrote the file, where each part tells of every request."""
    engine: str | None = None
    engine_version: str | None = None
    engine_version_reason: str | None = None
    engine_facts: dict[str, str | int | float] = field(default_factory=dict)
    """What the log says of the engine: llm, tensor_parallel, gpu, kv_capacity_tokens, …"""
    evidence_grade: Grade | None = None
    """The grade of this file if it differs from the format's best (a trace without hashes is L)."""
    late_arrivals: LateArrivals | None = None
    cache_proofs: dict[Producer, CacheProofs] = field(default_factory=dict)
    """What proves how prompts are counted, for the rows that are `unsettled`, of all files."""
    notes: list[Note] = field(default_factory=list)

    def note(self, code: str, message: str, *, severity: NoteSeverity = "info") -> None:
        """Leave a note once per code."""
        if all(existing.code != code for existing in self.notes):
            self.notes.append(Note(code=code, message=message, path=self.path, severity=severity))


class LineTime(NamedTuple):
    """The stamps of one log line; resolved to one clock when the file has been read."""

    instant_ns: int | None
    """UTC, from an outer layer."""
    naive_ns: int | None
    """Full date without a zone."""
    month_day: int | None
    """Month × 100 + day of a date without a year."""
    time_ns: int
    """Since midnight, with `month_day`."""
    wraps: int
    """New Years passed since the first stamped line of the file."""


class LogClock(Protocol):
    """What a dialect may ask of the file's clock, and tell it."""

    def elapsed_ns(self, start: LineTime, end: LineTime) -> int | None:
        """Nanoseconds between two lines on the best stamps that both have; None if none."""

    def anchor_zone(self, naive: LineTime, epoch_ns: int) -> None:
        """A line without zone holds an instant of its own that is (nearly) its stamp."""


PrefixKind = Literal[
    "vllm", "bracketed", "lmcache", "trtllm", "glog", "tracing", "json", "formatted", "none"
]
"""Inner prefix of a log line, by its form (not by its program):

vllm: `INFO 05-11 12:04:17 [file.py:39] ` and its kin, no year;
bracketed: `[2025-10-01 08:00:00 DP1 TP0] ` (SGLang); the labels are in `LogLine.label`;
lmcache: `[2025-01-01 00:00:00,000] LMCache INFO: `;
trtllm: `[01/16/2026-06:20:17] [TRT-LLM] [RANK 0] [I] `, `[TensorRT-LLM][INFO] `;
glog: `I0101 00:00:00.000000 1234 file.cc:123] ` (Mooncake, klog), no year;
tracing: `2025-07-23T12:19:08.597Z  INFO target: ` (Dynamo, TGI); the target is in `LogLine.label`;
json: the line is a JSON object that is no formatter's wrapping around a message;
formatted: a JSON formatter or another logger took the prefix away; the text is the bare message;
none: no known prefix.
"""


class LogLine(msgspec.Struct, gc=False):
    """One line of a text log, peeled down to the message of the program that wrote it."""

    record: Record
    """The first physical record of the line: it gives offset and line, and takes the outcome."""
    text: str
    """From the inner prefix on."""
    message: str
    """Behind the inner prefix."""
    prefix: PrefixKind
    time: LineTime
    """All stamps of the line; `textlog` turns them into ns when the file has been read."""
    process: str | None = None
    """Process prefix, such as `EngineCore_DP0`."""
    writer: str | None = None
    """The process prefix with rank and process id: tells processes of one name apart."""
    label: str | None = None
    """What the inner prefix says beside time and level: ranks, rank, logger target."""
    level: str | None = None
    """Level of the inner prefix in capitals, where it has one."""
    terminated: bool = True
    """False if the file ends in the line: a number at its end may be cut."""
    through_ray: bool = False
    """Ray's de-duplication was in between: repeated lines are missing."""
    document: str | None = None
    """The whole JSON object of the formatter that the message was in; its other keys are data."""


class Emit(Protocol):
    """Takes a row of a text log together with the stamps that will date it."""

    def __call__(self, row: Row, time: LineTime | None = None) -> None:
        """Take the row; with `time`, its instant is filled in when the file has been read.

        Arrival, observation or start of the row. Rows may come in any order.
        """


@dataclass(frozen=True, slots=True)
class LogContext:
    """What a dialect gets: its own context (the tally is the file's), the clock, the way out."""

    context: ReadContext
    clock: LogClock
    """Of the file, shared by its dialects: differences of two lines, hints of year and zone."""
    emit: Emit


@dataclass(frozen=True, slots=True)
class Guess:
    """How sure a format is that a file is its own (0..1), and why, in one sentence."""

    confidence: float
    why: str


@dataclass(frozen=True, slots=True)
class Head:
    """The start of a decompressed file: what sniffing may look at (up to 64 KiB, whole lines)."""

    path: str
    text: str
    """Decoded (UTF-8 with replacement, UTF-16 by BOM), BOM stripped."""
    lines: tuple[str, ...]
    """Non-blank lines."""
    json_objects: tuple[dict[str, object], ...]
    """First records that parse as JSON objects (lines or array elements), at most 50."""
    csv_header: tuple[str, ...]
    """Cells of the first line if it looks like a CSV header, else empty."""


class Reader(Protocol):
    """Turns records into rows; streaming, one file."""

    def __call__(self, records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
        """Yield rows in file order; give each record one outcome on `context.tally`."""


@dataclass(frozen=True, slots=True)
class ExpressKind:
    """Messages behind vLLM's prefix that a dialect can tell from the bytes of a plain line alone.

    What they give must not differ from what `LogReader.take` makes of the same line.
    """

    pattern: bytes
    """The whole message, without line end; linear, and with its groups by number."""
    read: Callable[[re.Match[bytes], int], object | None] | None = None
    """From the match, and the number of the pattern's first group in it, to the line's value; its
    None sends the line the careful way. Without it, the first group is the value."""
    closes: tuple[int, ...] = ()
    """Numbers of the kinds that its lines mostly follow directly, from the same writer in the same
    second, with the same first group: such a pair is told as one line."""


ToldLine = tuple[
    int, int, int, bytes | None, bytes, bytes | None, object, tuple[int, int, int] | None
]
"""A line of the express lane: number of its kind, bytes and lines of the block before it, process
prefix without brackets, time stamp, the bracket before the file name, value; and of the line that
closes it, if there is one, number of its kind, bytes and lines before it."""


class LogReader(Protocol):
    """The lines of one dialect in one text log, on their way to rows."""

    def take(self, line: LogLine) -> bool:
        """Whether the line is this dialect's. If so it was given its one outcome on the tally.

        False leaves tally and state untouched: another dialect is asked.
        """

    def finish(self) -> None:
        """Every line was taken: emit the rows held back, fill engine, version, grade and notes."""


@runtime_checkable
class ExpressReader(LogReader, Protocol):
    """A reader that takes lines from the express lane too."""

    def take_told(
        self,
        told: Sequence[ToldLine],
        *,
        offset: int,
        line: int,
        time_of: Callable[[bytes], LineTime],
    ) -> None:
        """Take lines of the express lane, as `take` would take each of them.

        `offset` and `line` are those of their block; `time_of` is to be asked whenever the time
        stamp of a line is not that of the one before.
        """


@dataclass(frozen=True, slots=True)
class LogDialect:
    """The lines of one program (or a family of them) inside text logs."""

    prefixes: frozenset[PrefixKind]
    """Kinds of inner prefix whose lines it wants to see."""
    open: Callable[[LogContext], LogReader]
    express: Callable[[ReadContext], tuple[ExpressKind, ...]] | None = None
    """Its commonest messages behind vLLM's prefix; `open` then gives an `ExpressReader`."""


@dataclass(frozen=True, slots=True)
class Format:
    """One literal format: a row of the registry."""

    name: str
    """Stable slug, such as `mooncake`."""
    title: str
    framing: Framing
    best_grade: Grade
    supplies: tuple[str, ...]
    """Columns that it can fill."""
    missing: dict[str, str]
    """Question that it cannot answer → the flag or source that would supply it."""
    versions: str
    """Upstream versions whose shape was read, and where."""
    sniff: Callable[[Head], Guess | None]
    read: Reader
    is_benchmark: bool = False
    holds_one_conversation: bool = False
    """Each file holds one conversation: its requests are in no other file, and their clocks start
    with it, so that several files add up but have no common clock."""
    enable_hint: str = ""
    """How to switch this log on in production: flags to paste."""
    dialect: LogDialect | None = None
    """Set for kinds of lines that stand beside others in one text log (`textlog.log_format`)."""
    max_record_bytes: int | None = None
    """Limit of one record if it is not the usual 16 MiB (documents that hold a whole run)."""
    distribution: str | None = None
    """Name and version of the package that brings it; None: kvtrace."""
