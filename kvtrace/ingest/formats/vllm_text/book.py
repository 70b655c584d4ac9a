"""The requests of one log: events go in, one row for every engine request comes out.

V0 prints Received and Added for the same request; newer engines add eight hex digits to the id, and
a call with n > 1 has one engine request for every sample (`0_ID`, `1_ID`). An id that comes again
after an end, a restart, or the same kind of event is a new request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kvtrace.ingest.contract import LineTime, LogClock, Record, RequestRow
from kvtrace.ingest.formats.vllm_text.messages import RequestEvent
from kvtrace.schema.manifest import Status
from kvtrace.units import NS_PER_S

BlockHasher = Callable[[str, str | None], list[int]]
"""From a printed list of token ids and the adapter to the keys of the prompt's blocks."""
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
_SAMPLE = re.compile(r"^\d{1,4}_")


@dataclass(slots=True)
class _Entry:
    request_id: str
    offset: int
    line: int
    arrived: LineTime
    received: bool = False
    added: bool = False
    ended: LineTime | None = None
    status: Status = "open"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    adapter: str | None = None
    request_type: str | None = None
    block_keys: list[int] | None = None
    flags: list[str] = field(default_factory=list)


class RequestBook:
    """All requests that a log names, and those of them that an id can still mean."""

    def __init__(self, clock: LogClock, hash_blocks: BlockHasher | None = None) -> None:
        self._clock = clock
        self._hash_blocks = hash_blocks
        self._entries: list[_Entry] = []
        self._by_id: dict[str, _Entry] = {}
        self._samples: dict[str, list[_Entry]] = {}
        self.saw_suffix = False

    def __len__(self) -> int:
        """Requests so far."""
        return len(self._entries)

    def restart(self) -> None:
        """The server started again: ids from before mean other requests now."""
        self._by_id.clear()
        self._samples.clear()

    def take(self, event: RequestEvent, record: Record, time: LineTime) -> str | None:
        """Enter the event; None if it contributed, else the reason why it did not."""
        if event.kind == "received":
            self._receive(event, record, time)
        elif event.kind == "added":
            self._add(event.request_ids[0], record, time)
        elif event.kind == "ended":
            ends = [self._end(event, request_id, time) for request_id in event.request_ids]
            return None if None in ends else ends[0]
        elif event.kind == "response":
            return self._end(event, event.request_ids[0], time)
        else:
            return self._fill(event)
        return None

    def _new(self, request_id: str, record: Record, time: LineTime) -> _Entry:
        entry = _Entry(request_id, record.offset, record.line, time)
        self._entries.append(entry)
        self._by_id[request_id] = entry
        self._samples.pop(request_id, None)
        return entry

    def _receive(self, event: RequestEvent, record: Record, time: LineTime) -> None:
        request_id = event.request_ids[0]
        entry = self._by_id.get(request_id)
        if entry is None or entry.received or entry.ended is not None:
            entry = self._new(request_id, record, time)
        entry.received = True
        entry.adapter = event.adapter
        entry.request_type = "pooling" if event.is_pooling else None
        self._set_prompt(entry, event)

    def _add(self, engine_id: str, record: Record, time: LineTime) -> None:
        entry = self._by_id.get(engine_id)
        if entry is not None and not entry.added and entry.ended is None:
            entry.added = True
            return
        external = _external_ids(engine_id)
        for candidate in external:
            parent = self._by_id.get(candidate)
            if parent is None or not parent.received or parent.ended is not None:
                continue
            self.saw_suffix |= _SUFFIX.search(engine_id) is not None
            if _SAMPLE.match(engine_id) and not _SAMPLE.match(candidate):
                self._add_sample(engine_id, candidate, parent, record)
                return
            if not parent.added:
                parent.added = True
                self._by_id[engine_id] = parent
                return
        self._new(engine_id, record, time).added = True

    def _add_sample(self, engine_id: str, parent_id: str, parent: _Entry, record: Record) -> None:
        """One of n samples of a call: the first takes over the call's row, others copy it."""
        samples = self._samples.setdefault(parent_id, [])
        entry = parent
        if samples:
            entry = replace(
                parent,
                offset=record.offset,
                line=record.line,
                flags=[flag for flag in parent.flags if flag != "parallel_sample"],
            )
            self._entries.append(entry)
        entry.request_id = _SUFFIX.sub("", engine_id) if _SUFFIX.search(engine_id) else engine_id
        entry.added = True
        entry.flags.append("parallel_sample")
        samples.append(entry)
        self._by_id[engine_id] = entry

    def _meant(self, request_id: str) -> list[_Entry]:
        """The rows that an id means: one, or all samples of a call."""
        samples = self._samples.get(request_id)
        if samples:
            return samples
        for candidate in (request_id, *_external_ids(request_id)):
            entry = self._by_id.get(candidate)
            if entry is not None:
                return [entry]
        return []

    def _end(self, event: RequestEvent, request_id: str, time: LineTime) -> str | None:
        meant = self._meant(request_id)
        if not meant:
            return "end_without_start"
        open_entries = [entry for entry in meant if entry.ended is None]
        if not open_entries:
            return "repeated_end"
        for entry in open_entries:
            entry.ended = time
            entry.status = event.status or "ok"
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

    def rows(self, llm: str | None) -> Iterator[tuple[RequestRow, LineTime]]:
        """The rows in file order, each with the stamps of its arrival."""
        self._entries.sort(key=lambda entry: entry.offset)
        for entry in self._entries:
            e2e_ns = self._e2e_ns(entry)
            row = RequestRow(
                offset=entry.offset,
                line=entry.line,
                request_id=entry.request_id,
                llm=llm,
                adapter=entry.adapter,
                request_type=entry.request_type,
                prompt_tokens=entry.prompt_tokens,
                output_tokens=entry.output_tokens,
                e2e_ns=e2e_ns,
                status=entry.status,
                flags=tuple(entry.flags),
                block_keys=entry.block_keys,
            )
            yield row, entry.arrived

    def _e2e_ns(self, entry: _Entry) -> int | None:
        """From arrival to the end; whole seconds on the log's own clock, which is then flagged."""
        if entry.ended is None:
            return None
        e2e_ns = self._clock.elapsed_ns(entry.arrived, entry.ended)
        if e2e_ns is None:
            return None
        if e2e_ns < 0:
            entry.flags.append("time_order")
            return None
        if e2e_ns % NS_PER_S == 0:
            entry.flags.append("e2e_in_whole_seconds")
        return e2e_ns

    def share_with_blocks(self) -> float:
        """Share of the requests, 0..1, whose token ids were printed; 0 without requests."""
        held = sum(entry.block_keys is not None for entry in self._entries)
        return held / len(self._entries) if self._entries else 0.0

    def forget_blocks(self) -> None:
        """Too few requests have blocks for them to say anything about reuse."""
        for entry in self._entries:
            entry.block_keys = None

    def _set_prompt(self, entry: _Entry, event: RequestEvent) -> None:
        if event.is_truncated:
            if "prompt_truncated" not in entry.flags:
                entry.flags.append("prompt_truncated")
            return
        if event.prompt_tokens is not None:
            entry.prompt_tokens = event.prompt_tokens
        if event.token_ids is not None and self._hash_blocks is not None:
            entry.block_keys = self._hash_blocks(event.token_ids, entry.adapter)


def _external_ids(engine_id: str) -> list[str]:
    """Ids that an engine id may have been made from, the longest first."""
    bare = _SUFFIX.sub("", engine_id)
    without_sample = _SAMPLE.sub("", engine_id)
    candidates = (bare, without_sample, _SAMPLE.sub("", bare))
    return [candidate for candidate in dict.fromkeys(candidates) if candidate != engine_id]
