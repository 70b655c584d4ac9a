"""One text log, line by line, to the dialects that know its lines; every record one outcome."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvtrace.ingest.clocks import NO_TIME, ClockUse, FileClock, IsoTime
from kvtrace.ingest.contract import (
    ExpressReader,
    Format,
    LineTime,
    LogContext,
    LogLine,
    LogReader,
    PrefixKind,
    ReadContext,
    Record,
    RequestRow,
    Row,
    Tally,
    TransferRow,
)
from kvtrace.ingest.files.frame import FrameCounts, LineBlock, block_records, line_record
from kvtrace.ingest.files.layers import LinePeeler, PeeledLine, skip_progress_bar
from kvtrace.ingest.textlog.ahead import LookAhead, SecondProcess, second_process
from kvtrace.ingest.textlog.express import HEALTH_PATHS, ExpressLane, Run
from kvtrace.ingest.textlog.learned import PrefixLearner
from kvtrace.ingest.textlog.prefixes import (
    NONE,
    PlainLine,
    Prefix,
    YearlessTime,
    parse_plain,
    parse_prefix,
    yearless_stamp,
)
from kvtrace.schema.manifest import Clock

_ACCESS = re.compile(
    r"(?:(?:INFO|WARNING|ERROR): +)?\S{1,80} (?:\d+ )?"
    r'- "[A-Z]{3,10} (\S{1,2000}) HTTP/[\d.]+" \d{3}'
)
_WHOLE_ACCESS = re.compile(
    rb"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z (?:std(?:out|err) F )?)?"
    rb"(?:\([A-Za-z][\w.:/-]{0,120} pid=\d+\) )?"
    rb'(?:INFO|WARNING|ERROR): +[!-~]{1,80} (?:\d+ )?- "[A-Z]{3,10} ([!-~]{1,2000}) HTTP/[\d.]+"'
    rb" \d{3}(?: [A-Za-z -]{1,40})?\r?"
)
"""An access line in its plainest layers, told before anything is decoded or peeled."""
_ODD_ACCESS = re.compile(
    r"(?:(?:INFO|WARNING|ERROR): +)?\S{1,80} "
    r'(?:(?:\d+ )?-|\S{1,80} \S{1,80} \[[^\]]{1,40}\]) "[A-Z]{3,10} ([^"]*+)"'
    r" \d{3}(?: [\w -]{1,40})?\s*+\Z"
)
"""An access line whose URL holds blanks; whatever else it holds is a stranger's text."""
_ACCESS_END_CHARS: Final = 80
_RAY_NOTE: Final = (
    "ray_deduplicates",
    "Ray drops repeated lines, so counts from this file are lower bounds (RAY_DEDUP_LOGS=0).",
)
_WRONG_TIME: Final = ("invalid_time", "no such date or time")

RowSink = Callable[[Row, LineTime | None], None]


@dataclass(slots=True)
class LogPart:
    """One dialect at work in a log, and what its rows say of the clock."""

    format: Format
    context: ReadContext
    reader: LogReader
    use: ClockUse
    lines: int = 0
    """Lines that it knew, used or not."""
    used: int = 0
    """Lines that contributed to a row."""


@dataclass(frozen=True, slots=True)
class PartClock:
    """How the rows of a part are dated."""

    own: Clock
    """Clock of the rows that date themselves."""
    lines: Clock
    """Clock of the rows that a line dates."""
    resolve: Callable[[LineTime], int | None]


@dataclass(frozen=True, slots=True)
class _Express:
    part: LogPart
    reader: ExpressReader
    lane: ExpressLane
    start: Callable[[], SecondProcess] | None


class LogRouter:
    """The dialects of one log. Feed it records, then `finish`."""

    def __init__(
        self,
        formats: Sequence[Format],
        tally: Tally,
        *,
        new_context: Callable[[], ReadContext],
        new_sink: Callable[[Format], RowSink],
    ) -> None:
        self._tally = tally
        self._peeler = LinePeeler(tally)
        self._learner = PrefixLearner()
        contexts = [new_context() for _ in formats]
        self._clock = FileClock(contexts[0] if contexts else None)
        self._last_stamp: YearlessTime | None = None
        self._last_time = NO_TIME
        self.parts = [
            self._open(entry, context, new_sink(entry))
            for entry, context in zip(formats, contexts, strict=True)
        ]
        self._by_prefix: dict[PrefixKind, list[LogPart]] = {}
        for part in self.parts:
            for kind in part.format.dialect.prefixes if part.format.dialect else ():
                self._by_prefix.setdefault(kind, []).append(part)
        self.record: Record | None = None
        """The record at hand; None while lines come from the express lane."""
        self._express = self._open_express()

    def _open_express(self) -> _Express | None:
        """The lane of the first dialect behind vLLM's prefix, if it has one."""
        part = next(iter(self._by_prefix.get("vllm", ())), None)
        if part is None or part.format.dialect is None or part.format.dialect.express is None:
            return None
        if not isinstance(part.reader, ExpressReader):
            raise RuntimeError(f"{part.format.name} has no reader for its express lane")
        kinds = part.format.dialect.express
        start = second_process(kinds, part.context)
        return _Express(part, part.reader, ExpressLane(kinds(part.context)), start)

    def _open(self, entry: Format, context: ReadContext, sink: RowSink) -> LogPart:
        if entry.dialect is None:
            raise RuntimeError(f"{entry.name} is no dialect of text logs")
        use = ClockUse()

        def emit(row: Row, time: LineTime | None = None) -> None:
            if time is not None:
                use.count(time)
            sink(row, time)

        reader = entry.dialect.open(LogContext(context, self._clock, emit))
        return LogPart(entry, context, reader, use)

    def take_blocks(self, blocks: Iterable[LineBlock], counts: FrameCounts) -> None:
        """All lines of the file, which are counted; the same as `take` for each of them."""
        express = self._express
        if express is None:
            for block in blocks:
                self._take_careful(block, counts)
            return
        for block, runs in LookAhead(express.lane, express.start).told(blocks):
            if runs is None:
                self._take_careful(block, counts)
            else:
                self._take_block(express, block, runs, counts)

    def _take_careful(self, block: LineBlock, counts: FrameCounts) -> None:
        for record in block_records(block, counts):
            self.take(record)

    def _take_block(
        self, express: _Express, block: LineBlock, runs: Iterable[Run], counts: FrameCounts
    ) -> None:
        """Take runs while no line has to wait for others; then line by line until none has."""
        at = lines = 0
        while at < len(block.data):
            if self._is_waiting():
                end = block.data.find(b"\n", at) + 1 or len(block.data)
                self._take_line(block, at, end, lines, counts)
                at, lines = end, lines + 1
                if not self._is_waiting():
                    runs = express.lane.scan(block.data, at, lines)
                continue
            at = len(block.data)
            for run in runs:
                self._take_run(express, block, run, counts)
                if run.end > run.start:
                    self._take_line(block, run.start, run.end, run.lines, counts)
                    if self._is_waiting():
                        at, lines = run.end, run.lines + 1
                        break

    def _is_waiting(self) -> bool:
        return self._peeler.is_joining or self._learner.is_holding

    def _take_line(
        self, block: LineBlock, start: int, end: int, lines: int, counts: FrameCounts
    ) -> None:
        record = line_record(block, start, end, lines, counts)
        if record is not None:
            self.take(record)

    def _take_run(self, express: _Express, block: LineBlock, run: Run, counts: FrameCounts) -> None:
        counts.delivered += run.told_lines + run.access + run.health
        self._tally.ignore_many("access_line", run.access)
        self._tally.ignore_many("health_check", run.health)
        if run.told:
            self.record = None
            used, part = self._tally.used, express.part
            express.reader.take_told(
                run.told, offset=block.offset, line=block.line, time_of=self._told_time
            )
            part.lines += run.told_lines
            part.used += self._tally.used - used

    def _told_time(self, stamp: bytes) -> LineTime:
        return self._time(yearless_stamp(stamp), None, None)

    def take(self, record: Record) -> None:
        """The next record of the file."""
        self.record = record
        if not self._peeler.is_joining:
            if b" HTTP/1." in record.data[-40:]:
                access = _WHOLE_ACCESS.fullmatch(record.data)
                if access is not None:  # most lines of a busy server; they carry nothing wanted
                    self._skip_access(access[1].decode("utf-8", "replace"))
                    return
            if not self._learner.is_holding:
                plain = parse_plain(record.data)
                if plain is not None:
                    self._deliver_plain(record, plain)
                    return
        line = self._peeler.feed(record)
        if line is not None:
            self._route(line)

    def _route(self, peeled: PeeledLine) -> None:
        prefix = self._prefix(peeled)
        if not self._learner.holds(peeled, prefix):
            self._dispatch(peeled, prefix)
        elif self._learner.is_full:
            self.settle()

    def settle(self) -> None:
        """Let lines go that wait until the text before vLLM's prefix is known."""
        for peeled, prefix in self._learner.settle():
            self._dispatch(peeled, prefix)

    def _dispatch(self, peeled: PeeledLine, prefix: Prefix) -> None:
        if prefix.is_time_wrong:
            self._tally.reject(peeled.record, *_WRONG_TIME)
            return
        self._deliver(self._line(peeled, prefix))

    def _deliver_plain(self, record: Record, plain: PlainLine) -> None:
        if plain.yearless is None:
            self._tally.reject(record, *_WRONG_TIME)
            return
        self._deliver(
            LogLine(
                record=record,
                text=plain.text,
                message=plain.message,
                prefix="vllm",
                time=self._time(plain.yearless, None, None),
                process=plain.process,
                writer=plain.writer,
                label=plain.label,
                level=plain.level,
                terminated=record.terminated,
            )
        )

    def _deliver(self, line: LogLine) -> None:
        """Give the line to the first dialect that knows it."""
        if line.prefix == "none" and " HTTP/" in line.message[-_ACCESS_END_CHARS:]:
            access = _ODD_ACCESS.match(line.message)
            if access is not None:
                self._skip_access(access[1])
                return
        for part in self._by_prefix.get(line.prefix, ()):
            used = self._tally.used
            if part.reader.take(line):
                part.lines += 1
                is_used = self._tally.used > used
                part.used += is_used
                if is_used and line.through_ray:
                    part.context.note(*_RAY_NOTE)
                return
        self._other(line)

    def _prefix(self, peeled: PeeledLine) -> Prefix:
        if peeled.is_formatted:
            return Prefix("formatted", 0)
        has_instant = peeled.instant is not None
        prefix = parse_prefix(peeled.text, has_instant=has_instant)
        if prefix is NONE:
            learned = self._learner.peel(peeled)
            if learned is not None:
                return learned
            behind = skip_progress_bar(peeled.text)
            if behind is not peeled.text:
                found = parse_prefix(behind, has_instant=has_instant)
                if found is not NONE:
                    peeled.text = behind
                    return found
        return prefix

    def _line(self, peeled: PeeledLine, prefix: Prefix) -> LogLine:
        instant = peeled.instant or prefix.instant
        naive = prefix.naive or peeled.naive
        yearless = prefix.yearless or (peeled.yearless if naive is None else None)
        return LogLine(
            record=peeled.record,
            text=peeled.text,
            message=peeled.text[prefix.end :] if prefix.end else peeled.text,
            prefix=prefix.kind,
            time=self._time(yearless, instant, naive),
            process=peeled.process,
            writer=peeled.writer,
            label=prefix.label,
            level=prefix.level,
            terminated=peeled.terminated,
            through_ray=peeled.through_ray,
            document=peeled.document,
        )

    def _time(
        self, stamp: YearlessTime | None, instant: IsoTime | None, naive: IsoTime | None
    ) -> LineTime:
        """The stamps of the line; lines of one second share the object."""
        if instant is None and naive is None:
            if stamp is None:
                return NO_TIME
            if stamp is self._last_stamp:
                return self._last_time
            self._last_stamp = stamp
        else:
            self._last_stamp = None
        month_day, time_ns = stamp or (None, 0)
        self._last_time = self._clock.observe(
            month_day=month_day, time_ns=time_ns, instant=instant, naive=naive
        )
        return self._last_time

    def _other(self, line: LogLine) -> None:
        """A line that no dialect knows."""
        access = _ACCESS.match(line.message[:3_000])
        if access is not None:
            self._skip_access(access[1])
        else:
            self._tally.ignore("other_text" if line.prefix == "none" else "other_program")

    def _skip_access(self, path: str) -> None:
        """Count a line of an HTTP server's access log."""
        self._tally.ignore("health_check" if path.startswith(HEALTH_PATHS) else "access_line")

    def finish(self) -> None:
        """The file has ended: the dialects give what they held back."""
        self.record = None
        self.settle()
        self._peeler.flush()
        for part in self.parts:
            part.reader.finish()

    def clock_of(self, part: LogPart) -> PartClock:
        """How the part's rows are dated; call after `finish`. Fills the clock of its context."""
        context = part.context
        own = context.clock
        reason, resolution_ns = context.clock_reason, context.clock_resolution_ns
        resolve = self._clock.resolver(context, part.use)
        lines = context.clock
        if own != "order":
            context.clock = own
            if part.use.bearing == 0:  # what the reader says of its clock stands
                context.clock_reason, context.clock_resolution_ns = reason, resolution_ns
        return PartClock(own if own != "order" else lines, lines, resolve)


@dataclass(slots=True)
class _Held:
    """Rows kept until the file ends, where the whole file fits in memory (tests, small uses)."""

    rows: list[tuple[Row, LineTime | None]] = field(default_factory=list)

    def __call__(self, row: Row, time: LineTime | None) -> None:
        self.rows.append((row, time))


def read_alone(entry: Format, records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """Rows of one dialect from a log, in file order, dated; other programs' lines are ignored."""
    held = _Held()
    router = LogRouter(
        [entry], context.tally, new_context=lambda: context, new_sink=lambda _entry: held
    )
    for record in records:
        router.take(record)
    router.finish()
    clock = router.clock_of(router.parts[0])
    for row, time in sorted(held.rows, key=lambda pair: pair[0].offset):
        if time is not None:
            date_row(row, clock.resolve(time))
        yield row


def date_row(row: Row, instant_ns: int | None) -> None:
    """Set the instant of a row: arrival, start or observation."""
    if isinstance(row, RequestRow):
        row.arrived_at_ns = instant_ns
    elif isinstance(row, TransferRow):
        row.started_at_ns = instant_ns
    else:
        row.observed_at_ns = instant_ns
