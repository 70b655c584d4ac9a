"""Reads the SGLang lines of a text log: dispatch by message, and one outcome for every line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from kvtrace.ingest.clocks import NO_TIME
from kvtrace.ingest.contract import (
    LineTime,
    LogContext,
    LogLine,
    Metric,
    RequestRow,
    SampleRow,
    Tally,
    TransferRow,
)
from kvtrace.ingest.families.sglang_meta import (
    MetaInfo,
    block_tokens_of,
    fill_request,
    hash_prompt,
    instant_of,
    storage_waits,
    whole_token_ids,
)
from kvtrace.ingest.formats.sglang_text.batches import (
    BATCH_STARTS,
    Batch,
    BatchParser,
    Shape,
    looks_like_batch_rest,
    looks_spliced,
)
from kvtrace.ingest.formats.sglang_text.book import (
    ARRIVAL_FROM_END,
    Received,
    RequestBook,
    event_time,
)
from kvtrace.ingest.formats.sglang_text.chunks import ChunkWatch
from kvtrace.ingest.formats.sglang_text.pool import MAX_SINGLE, BatchPool
from kvtrace.ingest.formats.sglang_text.ranks import Ranks, Speakers, parse_ranks
from kvtrace.ingest.formats.sglang_text.requests import (
    REQUEST_STARTS,
    DamagedRequest,
    IgnoredRequest,
    RequestEvent,
    looks_like_event,
    parse_event,
    parse_text,
)
from kvtrace.ingest.formats.sglang_text.startup import CAPACITY_STARTS, EngineFacts
from kvtrace.ingest.formats.sglang_text.timestats import TIME_STATS_STARTS, parse_time_stats
from kvtrace.ingest.formats.sglang_text.version import VersionEvidence
from kvtrace.ingest.textlog.engines import EngineNames
from kvtrace.schema.manifest import Grade
from kvtrace.units import NS_PER_S

_STARTS: Final = (
    *BATCH_STARTS,
    *REQUEST_STARTS,
    *TIME_STATS_STARTS,
    *CAPACITY_STARTS,
    "server_args=ServerArgs(",
)
_INNER_PREFIX = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?((?: [A-Z]{2,4}\d{1,5}){0,6})\] "
)
_CUT_PREFIX = re.compile(r"\[\d{4}-[\d :.-]{1,20}[A-Z\d ]{0,30}\]?")
_CUT_EVENT = re.compile(
    r'\{"timestamp": ?"[0-9:T. -]{0,40}(?:", ?"?[a-z]{0,5}"?(?:: ?"?[a-z.]{0,30}"?)?)?'
)
_HEALTH_CHECK: Final = "HEALTH_CHECK"
_MAX_SPLICED_CHARS: Final = 4_000
_ENOUGH_BLOCKS: Final = 0.8
"""Share of requests with token ids from which on their blocks are used."""
_MAX_ANCHORS: Final = 256


class _Damaged(ValueError):
    """The message starts as a known one and does not end as one."""


class _Ignored(Exception):
    """The message is known and carries nothing wanted."""


class SglangLog:
    """The SGLang lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._emit = log.emit
        self._clock = log.clock
        self._tally: Tally = log.context.tally
        self._version = VersionEvidence()
        self._facts = EngineFacts()
        self._speakers = Speakers()
        self._capacity_speakers = Speakers()
        self._chunks = ChunkWatch()
        self._parser = BatchParser()
        self._last_shape: Shape | None = None
        self._names = EngineNames()
        self._pool = BatchPool(log.emit)
        self._book = RequestBook(log.emit, log.clock)
        self._field_counts: dict[str, int] = {}
        self._learned: set[str] = set()
        self._has_prefills = False
        self._block_tokens: int | None = None
        self._ended_ok = 0
        self._with_blocks = 0
        self._anchors = 0

    def take(self, line: LogLine) -> bool:
        """Whether the line is SGLang's; then it has its outcome."""
        message = line.message
        reader = _READERS.get(message[:6])
        try:
            if reader is None or not reader(self, line):
                return self._stray(line)
        except _Damaged as damaged:
            self._tally.reject(line.record, "damaged_line", str(damaged))
        except DamagedRequest as damaged:
            self._tally.reject(line.record, "damaged_line", str(damaged))
        except (_Ignored, IgnoredRequest) as ignored:
            self._tally.ignore(str(ignored))
        except msgspec.ValidationError as bad:
            self._tally.reject(line.record, "invalid_field", str(bad))
        except (msgspec.DecodeError, RecursionError):
            is_json = line.terminated and message.startswith("{")
            reason = "invalid_json" if is_json else "damaged_line"
            self._tally.reject(line.record, reason, None if is_json else "fields of the request")
        else:
            self._tally.use()
        return True

    def _stray(self, line: LogLine) -> bool:
        """Lines without a known start: torn-off ends, and starts that the file ends in."""
        message = line.message
        if line.prefix == "none" and looks_like_batch_rest(message):
            cause = "a batch line without its start"
        elif not line.terminated and _is_cut_start(line):
            cause = "the file ends inside the line"
        else:
            return False
        self._tally.reject(line.record, "damaged_line", cause)
        return True

    def _batch(self, line: LogLine) -> bool:
        if not line.message.startswith(BATCH_STARTS):
            return False
        batch, ranks = self._parser.parse(line.message), parse_ranks(line.label)
        if batch is None:
            batch, ranks = self._spliced(line)
        self._check_fields(line, batch)
        if batch.shape is not self._last_shape:
            self._last_shape = batch.shape
            for feature in batch.shape.features:
                self._version.saw(feature)
        key = (line.writer, ranks.engine)
        if not self._speakers.speaks(key, ranks):
            raise _Ignored("duplicate_rank")
        if batch.kind == "prefill":
            self._has_prefills = True
            self._chunks.see(batch, key)
        name = self._names.name(ranks.engine, line.process, line.writer)
        self._pool.take(batch, line.record, line.time, name)
        return True

    def _check_fields(self, line: LogLine, batch: Batch) -> None:
        """A name that two torn names may have made, or a line that the file ends in, is damage."""
        for name in batch.shape.unknown:
            if name not in self._learned:
                self._learned.add(name)
                if looks_spliced(name):
                    raise _Damaged("a field of a batch line")
            self._context.note(
                "unknown_batch_field", "Batch lines have a field that is not read yet."
            )
        if not line.terminated:
            is_short = len(batch.values) < self._field_counts.get(batch.kind, 0)
            if is_short or line.message[-1:].isdigit():
                raise _Damaged("the file ends inside the line")
        self._field_counts[batch.kind] = len(batch.values)

    def _spliced(self, line: LogLine) -> tuple[Batch, Ranks]:
        """A batch line cut by another writer's whole line: read that one, drop the first."""
        message = line.message
        if len(message) < _MAX_SPLICED_CHARS:
            for match in _INNER_PREFIX.finditer(message):
                batch = self._parser.parse(message[match.end() :])
                if batch is not None:
                    self._context.note(
                        "spliced_lines",
                        "Two processes wrote into each other's lines; the torn ones are lost.",
                    )
                    return batch, parse_ranks(match[1].strip() or None)
        raise _Damaged("batch line")

    def _sample(self, line: LogLine, ranks: Ranks, metrics: list[Metric]) -> None:
        row = SampleRow(
            offset=line.record.offset,
            line=line.record.line,
            observed_at_ns=None,
            engine=self._names.name(ranks.engine, line.process, line.writer),
            metrics=metrics,
        )
        self._emit(row, None if line.time == NO_TIME else line.time)

    def _startup(self, line: LogLine) -> bool:
        message = line.message
        if not line.terminated and message[-1:].isdigit():
            raise _Damaged("a number at the end of the file")
        ranks = parse_ranks(line.label)
        found = self._facts.read(message, ranks)
        if found is None:
            if message.startswith(CAPACITY_STARTS):
                raise _Damaged("capacity")
            return False
        if found.version is not None:
            self._version.printed(found.version)
        if found.is_restart:
            self._book.restart()
            self._speakers.restart()
            self._capacity_speakers.restart()
            self._chunks.restart()
            self._names.restart(line.writer)
            self._pool.flush()
        llm = self._facts.facts.get("llm")
        self._book.llm = llm if isinstance(llm, str) else None
        if found.metrics and self._capacity_speakers.speaks((line.writer, ranks.engine), ranks):
            self._sample(line, ranks, list(found.metrics))
        return True

    def _text_request(self, line: LogLine) -> bool:
        if not line.message.startswith(REQUEST_STARTS):
            return False
        self._request(line, parse_text(line.message))
        self._version.saw("text_requests")
        return True

    def _json_request(self, line: LogLine) -> bool:
        if not looks_like_event(line.message):
            return False
        self._request(line, parse_event(line.message))
        self._version.saw("json_requests")
        return True

    def _request(self, line: LogLine, event: RequestEvent) -> None:
        request_id = event.request_id or ""
        if request_id.startswith(_HEALTH_CHECK):
            raise _Ignored("health_check")
        if event.meta is not None:
            self._finish(line, event, event.meta, request_id)
            return
        received = Received(
            line.record.offset,
            line.record.line,
            line.time,
            event.stamp,
            event.session_id,
            event.adapter,
            event.is_batch,
        )
        self._book.receive(request_id, received)

    def _finish(self, line: LogLine, event: RequestEvent, meta: MetaInfo, request_id: str) -> None:
        row = RequestRow(
            offset=line.record.offset,
            line=line.record.line,
            request_id=request_id,
            session_id=event.session_id,
            adapter=event.adapter,
            arrived_at_ns=event.received_at_ns,
            flags=("first_of_batch",) if event.is_batch else (),
        )
        tier = fill_request(row, meta, self._context)
        has_waits = meta.storage_prefetch_wait or meta.storage_staging_wait
        moves = self._waits(row, meta, tier) if has_waits else []
        opened = self._book.take_open(request_id)
        if opened is not None:
            row.session_id = row.session_id or opened.session_id
            row.adapter = row.adapter or opened.adapter
        if row.status == "ok":
            self._ended_ok += 1
            if event.token_ids:
                self._hash(row, event.token_ids)
        time = self._date(row, opened, line.time, event.stamp)
        if self._anchors < _MAX_ANCHORS:
            self._anchor(row, meta, opened, line.time, event.stamp)
        if meta.cached_tokens_details is not None:
            self._version.saw("cached_details")
        self._book.finish(request_id, row, time)
        for move in moves:
            self._book.move(move)

    def _hash(self, row: RequestRow, listed: msgspec.Raw | str) -> None:
        if self._block_tokens is None:
            page = self._facts.facts.get("block_size")
            self._block_tokens, self._context.block_size_reason = block_tokens_of(
                page if isinstance(page, int) else 1, self._context
            )
        self._with_blocks += hash_prompt(
            row, whole_token_ids(listed), self._context, block_tokens=self._block_tokens
        )

    def _waits(self, row: RequestRow, meta: MetaInfo, tier: str | None) -> list[TransferRow]:
        size = self._facts.bytes_per_token()
        moves = storage_waits(row, meta, tier, bytes_per_token=size)
        if moves and size is not None:
            self._context.note(
                "bytes_from_capacity",
                "Bytes of KV loads are tokens times the bytes a token of the capacity lines.",
            )
        return moves

    def _date(
        self, row: RequestRow, opened: Received | None, line_time: LineTime, stamp: str | None
    ) -> LineTime | None:
        """Stamps of the arrival where the row does not say it; fills the time to the last token."""
        if row.arrived_at_ns is not None and row.e2e_ns is not None:
            return None
        end = event_time(line_time, stamp)
        if opened is not None:
            if row.e2e_ns is None:
                _fill_e2e(row, self._clock.elapsed_ns(opened.time, end))
            return opened.time
        if row.arrived_at_ns is not None or row.e2e_ns is None:
            return None
        row.flags = (*row.flags, ARRIVAL_FROM_END)
        return _earlier(end, row.e2e_ns)

    def _anchor(
        self,
        row: RequestRow,
        meta: MetaInfo,
        opened: Received | None,
        line_time: LineTime,
        stamp: str | None,
    ) -> None:
        """Tell the clock which instant a stamp without zone is."""
        if row.arrived_at_ns is None:
            return
        self._anchors += 1
        if opened is not None:
            self._clock.anchor_zone(opened.time, row.arrived_at_ns)
            return
        sent = instant_of(
            "response_sent_to_client_ts", meta.response_sent_to_client_ts, self._context
        )
        if sent is None and row.e2e_ns is not None:
            sent = row.arrived_at_ns + row.e2e_ns
        if sent is not None:
            self._clock.anchor_zone(event_time(line_time, stamp), sent)

    def _time_stats(self, line: LogLine) -> bool:
        message = line.message
        if not message.startswith(TIME_STATS_STARTS):
            return False
        stats = parse_time_stats(message)
        if stats is None:
            raise _Damaged("time stats")
        if not line.terminated and message[-1:].isdigit():
            raise _Damaged("a number at the end of the file")
        if stats.request_id.startswith(_HEALTH_CHECK):
            raise _Ignored("health_check")
        self._version.saw("new_time_stats" if message.startswith("ReqT") else "old_time_stats")
        ended_at_ns = stats.ended_at_ns
        if ended_at_ns is not None and self._anchors < _MAX_ANCHORS:
            self._anchors += 1
            self._clock.anchor_zone(line.time, ended_at_ns)
        self._book.add_stats(stats, line.record, line.time)
        return True

    def finish(self) -> None:
        """Emit what was held back, and say what the log is."""
        self._book.close()
        self._pool.flush()
        context = self._context
        context.engine = "sglang"
        self._version.fill(context)
        self._facts.fill(context)
        if self._speakers.engines():
            context.engine_facts["engines"] = self._speakers.engines()
        if self._book.has_own_instants:
            context.clock = "utc"
            context.clock_reason = "requests carry their arrival in epoch seconds"
        context.evidence_grade = self._grade()
        if self._has_prefills:
            context.note(
                "new_tokens_page_rounded",
                "`#new-token` is rounded up to whole pages: computed tokens of batches are an upper"
                " bound.",
            )
        self._chunks.fill(context)
        if self._pool.has_pooled:
            context.note(
                "batches_pooled",
                f"Of the batch lines, the first {MAX_SINGLE:,} are samples of their own; the others"
                " are sums and means of one engine over ten seconds or more.",
            )

    def _grade(self) -> Grade:
        """Grade A if most requests print their token ids; fewer would mislead."""
        context, share = self._context, self._with_blocks / max(self._ended_ok, 1)
        if share >= _ENOUGH_BLOCKS:
            context.found_block_size_tokens, context.block_scope = self._block_tokens, "global"
            if share < 1:
                context.note(
                    "blocks_of_some_requests",
                    f"{share:.1%} of the requests print their token ids; reuse is a lower bound.",
                )
            return "A"
        if self._book.has_cached:
            return "B"
        return "C" if self._has_prefills else "L"


_READERS: Final[dict[str, Callable[[SglangLog, LogLine], bool]]] = {
    "Prefil": SglangLog._batch,
    "Decode": SglangLog._batch,
    "Receiv": SglangLog._text_request,
    "Finish": SglangLog._text_request,
    '{"time': SglangLog._json_request,
    '{"even': SglangLog._json_request,
    "ReqTim": SglangLog._time_stats,
    "Req Ti": SglangLog._time_stats,
    "KV Cac": SglangLog._startup,
    "max_to": SglangLog._startup,
    "Alloca": SglangLog._startup,
    "server": SglangLog._startup,
    "SGLANG": SglangLog._startup,
    "export": SglangLog._startup,
    "declar": SglangLog._startup,
    "SGLang": SglangLog._startup,
    "sglang": SglangLog._startup,
}
"""By the first six characters of the message; a reader says no to what only looks like its own."""


def _is_cut_start(line: LogLine) -> bool:
    """Whether the line ends inside the start of a known message, or inside the prefix before it."""
    if line.prefix == "bracketed":
        return line.message != "" and any(start.startswith(line.message) for start in _STARTS)
    if line.prefix == "json":
        return _CUT_EVENT.fullmatch(line.message[:160]) is not None
    return line.prefix == "none" and _CUT_PREFIX.fullmatch(line.message[:80]) is not None


def _fill_e2e(row: RequestRow, e2e_ns: int | None) -> None:
    """Time between the two lines; whole seconds on the log's own clock are flagged."""
    if e2e_ns is None:
        return
    if e2e_ns < 0:
        row.flags = (*row.flags, "time_order")
        return
    row.e2e_ns = e2e_ns
    if e2e_ns % NS_PER_S == 0:
        row.flags = (*row.flags, "e2e_in_whole_seconds")


def _earlier(time: LineTime, by_ns: int) -> LineTime | None:
    """The stamps of a full date, moved back; None where the line has none."""
    if time.instant_ns is None and time.naive_ns is None:
        return None
    return time._replace(
        instant_ns=None if time.instant_ns is None else time.instant_ns - by_ns,
        naive_ns=None if time.naive_ns is None else time.naive_ns - by_ns,
        month_day=None,
    )
