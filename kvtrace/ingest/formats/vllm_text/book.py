"""The requests of one server: events go in, one row for every engine request comes out.

V0 prints Received and Added for the same request; newer engines add eight hex digits to the id, and
a call with n > 1 has one engine request for every sample (`0_ID`, `1_ID`). An id that comes again
after an end, a restart, or the same kind of event is a new request.

V1 prints no end, so a request can stay open for ever. Each row leaves when `MAX_OPEN` newer
requests have come: what is held does not grow with the log.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Final

from kvtrace.ingest.contract import Emit, LineTime, LogClock, Record, RequestRow
from kvtrace.ingest.formats.vllm_text.messages import RequestEvent
from kvtrace.units import NS_PER_S

BlockHasher = Callable[[list[int], str | None], "array[int] | None"]
"""From token ids and the adapter to the keys of the prompt's blocks."""
MAX_OPEN: Final = 65_536
"""Far more than a server runs and queues; an end that comes later finds its row gone."""
_HEX_TAIL = re.compile(r"-[0-9a-f]{8}\Z")
_SAMPLE = re.compile(r"[0-9]{1,4}_")
_SAMPLE_FLAG: Final = "parallel_sample"


class Entry(RequestRow, gc=False, kw_only=True):
    """A row while lines of its request may come."""

    arrived: LineTime
    is_received: bool = False
    is_added: bool = False
    has_ended: bool = False
    keys: tuple[str, ...] = ()
    """What it is listed under."""

    def awaits_added(self) -> bool:
        """Whether an `Added` line under its own id is of this request."""
        return not self.is_added and not self.has_ended


class BookCounts:
    """What the requests of all servers of a log add up to."""

    def __init__(self) -> None:
        self.requests = 0
        self.with_blocks = 0
        self.left_open = 0
        """Rows that left because too many newer ones came."""
        self.unmatched_ends = 0
        self.saw_suffix = False

    def share_with_blocks(self) -> float:
        """Share of the requests, 0..1, whose token ids were printed; 0 without requests."""
        return self.with_blocks / self.requests if self.requests else 0.0


class RequestBook:
    """The requests that ids of one server can still mean."""

    def __init__(
        self,
        clock: LogClock,
        emit: Emit,
        counts: BookCounts,
        hash_blocks: BlockHasher | None = None,
        *,
        llm: Callable[[], str | None] = lambda: None,
        max_open: int = MAX_OPEN,
    ) -> None:
        self._clock = clock
        self._emit = emit
        self._counts = counts
        self._hash_blocks = hash_blocks
        self._llm = llm
        self._max_open = max_open
        self._live: deque[Entry] = deque()
        self._by_id: dict[str, Entry] = {}
        self._samples: dict[str, list[Entry]] = {}

    def close(self) -> None:
        """The log or the server's run has ended: ids mean other requests from now on."""
        self._by_id.clear()
        self._samples.clear()
        while self._live:
            self._give(self._live.popleft())

    def knows(self, request_id: str) -> bool:
        """Whether the id means a request of this server."""
        return bool(self._meant(request_id))

    def take(self, event: RequestEvent, record: Record, time: LineTime) -> str | None:
        """Enter the event; None if it contributed, else the reason why it did not."""
        kind = event.kind
        if kind == "added":
            self._add(event.request_ids[0], record, time)
        elif kind == "received":
            self.receive(event.request_ids[0], record.offset, record.line, time, event)
        elif kind == "ended":
            ends = [self._end(event, request_id, time) for request_id in event.request_ids]
            return None if None in ends else ends[0]
        elif kind == "response":
            return self._end(event, event.request_ids[0], time)
        else:
            return self._fill(event)
        return None

    def _new(self, request_id: str, offset: int, line: int, time: LineTime) -> Entry:
        entry = Entry(
            offset=offset,
            line=line,
            request_id=request_id,
            status="open",
            arrived=time,
            keys=(request_id,),
        )
        self._by_id[request_id] = entry
        if self._samples:
            self._samples.pop(request_id, None)
        self._hold(entry)
        return entry

    def _hold(self, entry: Entry) -> None:
        self._live.append(entry)
        if len(self._live) > self._max_open:
            oldest = self._live.popleft()
            self._counts.left_open += not oldest.has_ended
            self._forget(oldest)
            self._give(oldest)

    def _forget(self, entry: Entry) -> None:
        by_id = self._by_id
        for key in entry.keys:
            if by_id.get(key) is entry:
                del by_id[key]
            if not self._samples:
                continue
            samples = self._samples.get(key)
            if samples and samples[0] is entry:
                del self._samples[key]

    def _give(self, entry: Entry) -> None:
        if entry.llm is None:
            entry.llm = self._llm()
        self._counts.requests += 1
        self._counts.with_blocks += entry.block_keys is not None
        self._emit(entry, entry.arrived)

    def receive(
        self, request_id: str, offset: int, line: int, time: LineTime, event: RequestEvent | None
    ) -> Entry:
        """Enter a `Received` line; without an event, a bare one for SamplingParams, no adapter."""
        entry = self._by_id.get(request_id)
        if entry is None or entry.is_received or entry.has_ended:
            entry = self._new(request_id, offset, line, time)
        entry.is_received = True
        if event is None:
            entry.adapter = None
            return entry
        entry.adapter = event.adapter
        if event.is_pooling:
            entry.request_type = "pooling"
        self._set_prompt(entry, event)
        return entry

    def _add(self, engine_id: str, record: Record, time: LineTime) -> None:
        entry = self._by_id.get(engine_id)
        if entry is not None and not entry.is_added and not entry.has_ended:
            entry.is_added = True
            return
        for candidate in _external_ids(engine_id):
            parent = self._by_id.get(candidate)
            if parent is None or not parent.is_received or parent.has_ended:
                continue
            self._counts.saw_suffix |= _HEX_TAIL.search(engine_id) is not None
            if _SAMPLE.match(engine_id) and not _SAMPLE.match(candidate):
                self._add_sample(engine_id, candidate, parent, record)
                return
            if not parent.is_added:
                parent.is_added = True
                self._list(engine_id, parent)
                return
        self._new(engine_id, record.offset, record.line, time).is_added = True

    def _list(self, key: str, entry: Entry) -> None:
        self._by_id[key] = entry
        entry.keys = (*entry.keys, key)

    def _add_sample(self, engine_id: str, parent_id: str, parent: Entry, record: Record) -> None:
        """One of n samples of a call: the first takes over the call's row, others copy it."""
        samples = self._samples.setdefault(parent_id, [])
        entry = parent
        if samples:
            entry = copy(parent)
            entry.keys, entry.offset, entry.line = (parent_id,), record.offset, record.line
            self._hold(entry)
        else:
            entry.flags = (*entry.flags, _SAMPLE_FLAG)
        entry.request_id = _HEX_TAIL.sub("", engine_id)
        entry.is_added = True
        samples.append(entry)
        self._list(engine_id, entry)

    def _meant(self, request_id: str) -> list[Entry]:
        """The rows that an id means: one, or all samples of a call."""
        samples = self._samples.get(request_id)
        if samples:
            return samples
        entry = self._by_id.get(request_id)
        if entry is not None:
            return [entry]
        for candidate in _external_ids(request_id):
            entry = self._by_id.get(candidate)
            if entry is not None:
                return [entry]
        return []

    def _end(self, event: RequestEvent, request_id: str, time: LineTime) -> str | None:
        meant = self._meant(request_id)
        if not meant:
            self._counts.unmatched_ends += 1
            return "end_without_start"
        open_entries = [entry for entry in meant if not entry.has_ended]
        if not open_entries:
            return "repeated_end"
        for entry in open_entries:
            entry.has_ended = True
            entry.status = event.status or "ok"
            self._set_e2e(entry, time)
            if len(meant) == 1 and event.output_tokens is not None:
                entry.output_tokens = event.output_tokens
        return None

    def _fill(self, event: RequestEvent) -> str | None:
        """Token counts from DEBUG lines, for a request that other lines have named."""
        meant = self._meant(event.request_ids[0])
        if not meant:
            return "details_without_request"
        for entry in meant:
            if event.kind == "details":
                self._set_prompt(entry, event)
            elif len(meant) == 1:
                entry.output_tokens = event.output_tokens
        return None

    def _set_e2e(self, entry: Entry, ended: LineTime) -> None:
        """From arrival to the end; whole seconds on the log's own clock, which is then flagged."""
        e2e_ns = self._clock.elapsed_ns(entry.arrived, ended)
        if e2e_ns is None:
            return
        if e2e_ns < 0:
            entry.flags = (*entry.flags, "time_order")
            return
        if e2e_ns % NS_PER_S == 0:
            entry.flags = (*entry.flags, "e2e_in_whole_seconds")
        entry.e2e_ns = e2e_ns

    def _set_prompt(self, row: RequestRow, event: RequestEvent) -> None:
        if event.is_truncated:
            if "prompt_truncated" not in row.flags:
                row.flags = (*row.flags, "prompt_truncated")
            return
        if event.prompt_tokens is not None:
            row.prompt_tokens = event.prompt_tokens
        if event.block_keys is not None and row.adapter is None:
            row.block_keys = event.block_keys
        elif event.token_ids is not None and self._hash_blocks is not None:
            row.block_keys = self._hash_blocks(event.token_ids, row.adapter)


def _external_ids(engine_id: str) -> list[str]:
    """Ids that an engine id may have been made from, the longest first."""
    has_tail = engine_id[-9:-8] == "-" and _HEX_TAIL.search(engine_id) is not None
    bare = engine_id[:-9] if has_tail else engine_id
    sample = _SAMPLE.match(engine_id)
    candidates = [bare] if has_tail and bare else []
    if sample is not None:
        candidates += [text for text in (engine_id[sample.end() :], bare[sample.end() :]) if text]
    return list(dict.fromkeys(candidates)) if len(candidates) > 1 else candidates
