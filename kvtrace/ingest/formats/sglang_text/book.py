"""The requests of one log: lines of three kinds go in, one row for every request comes out.

A request may be told of by `Receive`, `Finish` and one or two `ReqTimeStats` lines, in any order
within a short time. So ended requests wait for a while for their other lines; how many may wait is
bounded, and a log with one kind of lines flows through.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kvtrace.ingest.clocks import NO_TIME, parse_iso
from kvtrace.ingest.contract import (
    Emit,
    LineTime,
    LogClock,
    Record,
    RequestRow,
    TransferRow,
)
from kvtrace.ingest.formats.sglang_text.timestats import HalfKind, TimeStats

_MAX_WAITING: Final = 16_384
"""Requests that wait for their other lines; after as many without any, none waits any more."""
ARRIVAL_FROM_END: Final = "arrival_from_end"
"""Flag of an arrival that is the stamp of the end minus the time to the last token."""
_MAX_OPEN: Final = 262_144


class Received(NamedTuple):
    """A request whose end has not been seen."""

    offset: int
    line: int
    line_time: LineTime
    stamp: str | None
    """Local time of a JSON event, as written."""
    session_id: str | None
    adapter: str | None
    is_batch: bool

    @property
    def time(self) -> LineTime:
        """The stamps of the arrival."""
        return event_time(self.line_time, self.stamp)


def event_time(line_time: LineTime, stamp: str | None) -> LineTime:
    """Stamps of a line, with the local time that a JSON event holds itself."""
    parsed = parse_iso(stamp) if stamp else None
    if parsed is None:
        return line_time
    if parsed.is_zoned:
        return line_time._replace(instant_ns=parsed.ns)
    return line_time._replace(naive_ns=parsed.ns)


class _Half(NamedTuple):
    stats: TimeStats
    offset: int
    line: int
    time: LineTime


@dataclass(slots=True)
class _Ended:
    """A request whose end has been seen, waiting for its other lines."""

    row: RequestRow | None = None
    time: LineTime | None = None
    """Stamps that date the row; None if the row has its own instant, or none at all."""
    halves: dict[HalfKind, _Half] = field(default_factory=dict)


class RequestBook:
    """Open and ended requests of one log."""

    def __init__(self, emit: Emit, clock: LogClock) -> None:
        self._emit = emit
        self._clock = clock
        self._open: OrderedDict[str, Received] = OrderedDict()
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._has_stats = False
        self.has_own_instants = False
        self.has_cached = False
        self.rows = 0
        self.llm: str | None = None

    def receive(self, request_id: str, received: Received) -> None:
        """A request arrived."""
        earlier = self._open.pop(request_id, None)
        if earlier is not None:
            self._give_open(request_id, earlier)
        self._open[request_id] = received
        if len(self._open) > _MAX_OPEN:
            self._give_open(*self._open.popitem(last=False))

    def take_open(self, request_id: str) -> Received | None:
        """The request that an end closes, if its arrival was seen."""
        return self._open.pop(request_id, None)

    def finish(self, request_id: str, row: RequestRow, time: LineTime | None) -> None:
        """A request ended, with its row; `time` dates it unless it has its own instant."""
        if not self._has_stats and self.rows > _MAX_WAITING:
            self._flow(row, time)
            return
        waiting = self._ended.get(request_id)
        if waiting is not None and waiting.row is not None:
            self._give(request_id)
            waiting = None
        if waiting is None:
            waiting = self._wait(request_id)
        waiting.row, waiting.time = row, time

    def _flow(self, row: RequestRow, time: LineTime | None) -> None:
        """Give a row of a log that has shown no time stats so far, and those that waited."""
        if self._ended:
            for request_id in list(self._ended):
                self._give(request_id)
        self._give_row(row, None if row.arrived_at_ns is not None else time)

    def add_stats(self, stats: TimeStats, record: Record, time: LineTime) -> None:
        """The scheduler told of a request's times."""
        self._has_stats = True
        waiting = self._ended.get(stats.request_id)
        if waiting is not None and not _belongs(stats, waiting):
            self._give(stats.request_id)
            waiting = None
        if waiting is None:
            waiting = self._wait(stats.request_id)
        waiting.halves[stats.kind] = _Half(stats, record.offset, record.line, time)

    def move(self, move: TransferRow) -> None:
        """Give a movement of KV; it dates itself, or has no time."""
        self.has_own_instants |= move.started_at_ns is not None
        self._emit(move)

    def restart(self) -> None:
        """The server started again: ids from before mean other requests now."""
        self.close()

    def close(self) -> None:
        """Give everything that was held back."""
        for request_id in list(self._ended):
            self._give(request_id)
        for request_id, received in self._open.items():
            self._give_open(request_id, received)
        self._open.clear()

    def _wait(self, request_id: str) -> _Ended:
        if len(self._ended) >= _MAX_WAITING:
            self._give(next(iter(self._ended)))
        waiting = _Ended()
        self._ended[request_id] = waiting
        return waiting

    def _give_open(self, request_id: str, received: Received) -> None:
        row = RequestRow(
            offset=received.offset,
            line=received.line,
            request_id=request_id,
            session_id=received.session_id,
            adapter=received.adapter,
            llm=self.llm,
            status="open",
            flags=("first_of_batch",) if received.is_batch else (),
        )
        self._give_row(row, received.time)

    def _give(self, request_id: str) -> None:
        ended = self._ended.pop(request_id)
        row, time = ended.row, ended.time
        halves = [half for kind in _HALF_ORDER if (half := ended.halves.get(kind)) is not None]
        if row is None:
            first = min(halves, key=lambda half: half.offset)
            row = RequestRow(offset=first.offset, line=first.line, request_id=request_id)
            fill_from_halves(row, halves)
        elif halves:
            fill_from_halves(row, halves)
        if row.arrived_at_ns is not None:
            time = None
        self._give_row(row, time)
        for move in hand_offs(row, halves):
            self.move(move)

    def _give_row(self, row: RequestRow, time: LineTime | None) -> None:
        row.llm = row.llm or self.llm
        self.rows += 1
        self.has_cached |= row.cached_tokens is not None
        self.has_own_instants |= row.arrived_at_ns is not None
        self._emit(row, None if time == NO_TIME else time)


_HALF_ORDER: Final[tuple[HalfKind, ...]] = ("unified", "prefill", "decode")


def _belongs(stats: TimeStats, waiting: _Ended) -> bool:
    """Whether the line can be of the request that waits under its id."""
    if stats.kind in waiting.halves:
        return False
    if stats.kind == "unified":
        return not waiting.halves
    rooms = {half.stats.room for half in waiting.halves.values()} | {stats.room}
    return "unified" not in waiting.halves and len(rooms - {None}) <= 1


def fill_from_halves(row: RequestRow, halves: list[_Half]) -> None:
    """Fill what the row does not know yet from the scheduler's lines."""
    stats = [half.stats for half in halves]
    first, last = stats[0], stats[-1]
    if row.prompt_tokens is None and row.status == "ok":
        row.prompt_tokens = first.input_tokens
    if row.cached_tokens is None and row.status == "ok":
        row.cached_tokens = first.cached_tokens
    if row.output_tokens is None and last.kind != "prefill" and row.status == "ok":
        row.output_tokens = last.output_tokens
    flags = [flag for half in stats for flag in half.flags]
    if row.queue_ns is None and first.kind != "decode":
        row.queue_ns = first.waiting_ns
    entered = [half.entered_at_ns for half in stats if half.entered_at_ns is not None]
    entered_at_ns = min(entered, default=None)
    if row.e2e_ns is None and last.kind != "prefill" and entered_at_ns is not None:
        ended_at_ns = last.ended_at_ns
        row.e2e_ns = None if ended_at_ns is None else max(0, ended_at_ns - entered_at_ns)
    if row.arrived_at_ns is None and entered_at_ns is not None:
        row.arrived_at_ns = entered_at_ns
        row.flags = tuple(flag for flag in row.flags if flag != ARRIVAL_FROM_END)
    if any((half.attempts or 1) > 1 for half in stats):
        flags.append("retracted")
    if last.kind == "prefill":
        flags.append("prefill_half_only")
    elif first.kind == "decode":
        flags.append("decode_half_only")
    if flags:
        row.flags = tuple(dict.fromkeys((*row.flags, *flags)))


def hand_offs(row: RequestRow, halves: list[_Half]) -> Iterator[TransferRow]:
    """The move of KV between the halves: bytes as the sender counted, time as the receiver did."""
    by_kind = {half.stats.kind: half for half in halves}
    sender, receiver = by_kind.get("prefill"), by_kind.get("decode")
    moved_bytes = None if sender is None else sender.stats.transfer_bytes
    duration_ns = None if receiver is None else receiver.stats.sum_ns("transfer")
    if receiver is not None and duration_ns == 0:
        duration_ns = None  # printed where a time was not set
    if moved_bytes is None and duration_ns is None:
        return
    started_at_ns = None
    if receiver is not None and receiver.stats.entered_at_ns is not None:
        reserving_ns = receiver.stats.reserving_ns
        if reserving_ns is not None:
            started_at_ns = receiver.stats.entered_at_ns + reserving_ns
    place = receiver or sender
    if place is None:
        return
    yield TransferRow(
        offset=place.offset,
        line=place.line,
        request_id=row.request_id,
        started_at_ns=started_at_ns,
        direction="hand_off",
        path="prefill>decode",
        moved_bytes=moved_bytes,
        moved_tokens=None,
        duration_ns=duration_ns,
        ranks=None,
    )
