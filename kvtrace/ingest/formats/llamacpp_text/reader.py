"""Reads the llama.cpp lines of a text log: servers by process, one outcome for every line."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import NO_TIME
from kvtrace.ingest.contract import LineTime, LogContext, LogLine, RequestRow, Tally
from kvtrace.ingest.formats.llamacpp_text.lines import (
    DamagedEvent,
    ServerLine,
    parse_line,
)
from kvtrace.ingest.formats.llamacpp_text.slots import OTHER, ClockKey, Server, Task
from kvtrace.ingest.textlog.fields import BadField, llm_of
from kvtrace.ingest.values.jsonfields import count_of, elapsed_ns, flag_lengths, mean_per_token_ns
from kvtrace.units import NS_PER_S, NS_PER_US

_MAX_SERVERS: Final = 256
_MAX_STREAMS: Final = 4_096
"""Streamed responses whose last piece is waited for."""
_RESTART_NS: Final = NS_PER_S
"""A clock since the start that steps back by more belongs to another start of the process."""


class _Timings(msgspec.Struct, gc=False):
    prompt_n: int
    predicted_n: int
    cache_n: int | None = None
    prompt_ms: Decimal | None = None
    predicted_ms: Decimal | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None


class _Response(msgspec.Struct, gc=False):
    timings: _Timings
    usage: _Usage | None = None
    id: str | None = None
    model: str | None = None
    created: int | None = None
    object: str | None = None
    stop: bool | None = None


_RESPONSE: Final = msgspec.json.Decoder(_Response)


class LlamaCppLog:
    """The llama.cpp lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally: Tally = log.context.tally
        self._emit = log.emit
        self._servers: dict[str, Server] = {}
        self._builds: dict[str, None] = {}
        self._runs = itertools.count(1)
        self._clock: ClockKey | None = None
        self._chunks: dict[str, tuple[RequestRow, LineTime]] = {}
        self._has_hits = False

    def take(self, line: LogLine) -> bool:
        """Whether the line is llama.cpp's; then it has its outcome."""
        if line.prefix == "json" or line.message.startswith("data: {"):
            return self._response(line)
        try:
            parsed = parse_line(line)
        except DamagedEvent as damaged:
            if damaged.process in self._servers:
                self._servers[damaged.process].lose(damaged.slot, damaged.task)
            self._tally.reject(line.record, "damaged_line", str(damaged))
            return True
        except BadField as bad:
            self._tally.reject(line.record, "damaged_line", str(bad))
            return True
        if parsed is None:
            return False
        reason = self._server_line(line, parsed)
        if reason is None:
            self._tally.use()
        else:
            self._tally.ignore(reason)
        return True

    def _server_line(self, line: LogLine, parsed: ServerLine) -> str | None:
        server = self._server(parsed.process)
        self._restart(server, parsed)
        if parsed.build is not None:
            self._builds[parsed.build] = None
            return None
        if parsed.event is None:
            return OTHER
        return server.take(parsed.event, line, parsed.own)

    def _server(self, process: str) -> Server:
        server = self._servers.get(process)
        if server is None:
            if len(self._servers) >= _MAX_SERVERS:
                self._servers.pop(next(iter(self._servers))).restart()
            server = Server(self._give, self._runs.__next__, run=next(self._runs))
            self._servers[process] = server
        return server

    def _restart(self, server: Server, parsed: ServerLine) -> None:
        """Begin a new run if the process started again: its build is printed, or its clock back."""
        if parsed.build is not None:
            server.restart()
        if parsed.own is not None and parsed.own[0] == "relative":
            if parsed.own[1] < server.uptime_ns - _RESTART_NS:
                server.restart()
            server.uptime_ns = max(server.uptime_ns, parsed.own[1])

    def _give(self, task: Task, clock: ClockKey | None, is_ended: bool) -> None:
        row = task.row(is_ended=is_ended)
        self._has_hits |= row.cached_tokens is not None
        has_date = task.time.instant_ns is not None or task.time.naive_ns is not None
        if has_date or (task.own is None and task.time != NO_TIME):
            self._emit(row, task.time)
            return
        if task.own is not None and clock is not None:
            row.arrived_at_ns = self._own_time(clock, task.own[1])
        self._emit(row)

    def _own_time(self, clock: ClockKey, ns: int) -> int | None:
        """The time, if it is on the first clock that rows of the file have; else it is unknown."""
        if self._clock is None:
            self._clock = clock
        if clock == self._clock:
            return ns
        self._context.note(
            "other_clocks",
            "Lines of several servers, starts or versions, each with a clock of its own: only the"
            " times of the first are kept. docker logs -t or journald give dates.",
        )
        return None

    def _response(self, line: LogLine) -> bool:
        """A response body, if it is one of llama.cpp: usage and timings, nothing of its text."""
        text = line.message.removeprefix("data: ")
        if '"timings":' not in text or '"predicted_n"' not in text:
            return False
        try:
            response = _RESPONSE.decode(text)
            row = _response_row(line, response)
        except msgspec.ValidationError as bad:
            self._tally.reject(line.record, "invalid_field", str(bad))
            return True
        except (msgspec.DecodeError, RecursionError):
            self._tally.reject(line.record, "damaged_line", "a response that is not whole")
            return True
        if response.stop is False:  # a piece of a stream without id: the last one counts all
            self._tally.ignore("stream_chunk")
            return True
        self._tally.use()
        if row.request_id is not None and (response.object or "").endswith(".chunk"):
            self._hold_chunk(row.request_id, row, line.time)
        else:
            self._give_response(row, line.time)
        return True

    def _hold_chunk(self, request_id: str, row: RequestRow, time: LineTime) -> None:
        """Keep the last piece of a stream: with `timings_per_token` each one counts again."""
        before = self._chunks.pop(request_id, None)
        if before is not None:
            row.offset, row.line = before[0].offset, before[0].line
        elif len(self._chunks) >= _MAX_STREAMS:
            self._give_response(*self._chunks.pop(next(iter(self._chunks))))
        self._chunks[request_id] = (row, time)

    def _give_response(self, row: RequestRow, time: LineTime) -> None:
        self._has_hits |= row.cached_tokens is not None
        if time != NO_TIME:
            row.arrived_at_ns = None
            self._emit(row, time)
            return
        if row.arrived_at_ns is not None:
            row.arrived_at_ns = self._own_time(("utc", 0), row.arrived_at_ns)
        self._emit(row)

    def finish(self) -> None:
        """Emit the tasks that are still open; say which clock the rows have."""
        for server in self._servers.values():
            server.restart()
        for row, time in self._chunks.values():
            self._give_response(row, time)
        context = self._context
        context.engine = "llamacpp"
        context.evidence_grade = "B" if self._has_hits else "L"
        if self._builds:
            context.engine_version = ", ".join(self._builds)
            context.engine_version_reason = "printed in the log"
        if self._clock is not None:
            context.clock = self._clock[0]
            is_uptime = context.clock == "relative"
            context.clock_resolution_ns = NS_PER_US if is_uptime else NS_PER_S
            context.clock_reason = (
                "lines carry the time since the server's start"
                if is_uptime
                else "lines carry seconds of the epoch"
            )


def _response_row(line: LogLine, response: _Response) -> RequestRow:
    """The row of a response; `prompt_n` is without the cached tokens.

    Raises:
        msgspec.ValidationError: a field holds something else than it must.
    """
    timings = response.timings
    flags: list[str] = ["dated_by_end"]
    computed = count_of("prompt_n", timings.prompt_n)
    cached = count_of("cache_n", timings.cache_n)
    output = count_of("predicted_n", timings.predicted_n)
    prefill_ns = elapsed_ns("prompt_ms", timings.prompt_ms, flags, power=-3)
    decode_ns = elapsed_ns("predicted_ms", timings.predicted_ms, flags, power=-3)
    stated = count_of("prompt_tokens", response.usage.prompt_tokens if response.usage else None)
    summed = None if cached is None or computed is None else cached + computed
    if None not in (stated, summed) and stated != summed:
        flags.append("total_mismatch")
    created = count_of("created", response.created)
    row = RequestRow(
        offset=line.record.offset,
        line=line.record.line,
        request_id=response.id,
        llm=llm_of(response.model),
        arrived_at_ns=None if created is None or created > 10**10 else created * NS_PER_S,
        prompt_tokens=stated if summed is None else summed,
        cached_tokens=cached,
        computed_tokens=computed,
        output_tokens=output,
        prefill_ns=prefill_ns,
        ttft_ns=prefill_ns,
        ttft_from=None if prefill_ns is None else "scheduled",
        tpot_ns=mean_per_token_ns(decode_ns, output),
        flags=tuple(flags),
    )
    flag_lengths(row)
    return row
