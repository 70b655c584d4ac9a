"""Calls that stand in each other: an agent's span around a gateway's around the engine's is one.

The innermost span of a call counts; what only the outer ones know is added to it. Spans come in any
order, mostly the inner ones first, so a bounded number of calls is held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kvtrace.ingest.contract import ReadContext, RequestRow
from kvtrace.ingest.prompts.rows import note_few_prompts
from kvtrace.ingest.spans.calls import ENGINE_SPAN, CallReader, Span

_HELD_CALLS: Final = 100_000
_HELD_BLOCKS: Final = 8_000_000
"""Of 8 bytes each."""
_KNOWN_SPANS: Final = 500_000
_MAX_DEPTH: Final = 64
_MOST_INSIDE: Final = 1_000
"""Calls that wait for one span; the others stand for themselves."""
_FROM_OUTER: Final = ("request_id", "session_id", "user", "llm", "request_type")


@dataclass(slots=True, eq=False)
class _Call:
    row: RequestRow
    key: int | None
    is_engine: bool
    inner: int = 0
    """Calls right inside it."""
    outer: _Call | None = None
    waits_for: int | None = None
    """The span around it that has not been seen."""


@dataclass(slots=True)
class CallBook:
    """The calls of one file on their way out, in file order."""

    reader: CallReader
    """Takes what calls around engines' calls prove."""
    _held: deque[_Call] = field(default_factory=deque)
    _calls: dict[int, _Call] = field(default_factory=dict)
    _parents: dict[int, int | None] = field(default_factory=dict)
    _waiting: dict[int, list[_Call]] = field(default_factory=dict)
    _engine_calls: set[int] = field(default_factory=set)
    _held_blocks: int = 0
    _rows: int = 0
    _rows_with_blocks: int = 0
    merged: int = 0
    repeated: int = 0
    twins: int = 0

    def add(self, span: Span, row: RequestRow | None) -> None:
        """Take a span, with its request if it is a call."""
        key = _key(span.trace_id, span.span_id)
        if key is not None and key in self._parents:
            self.repeated += row is not None  # exporters send again what was not confirmed
            return
        call = None if row is None else _Call(row, key, span.is_engine)
        parent = _key(span.trace_id, span.parent_id)
        if key is not None:
            self._remember(key, parent)
        inner = [] if key is None else self._waiting.pop(key, [])
        if call is None:
            for waiting in inner:
                self._place(waiting, parent)
            return
        for waiting in inner:
            _put_inside(waiting, call)
        self._held.append(call)
        self._held_blocks += len(call.row.block_keys or ())
        if key is not None:
            self._calls[key] = call
        self._place(call, parent)
        if span.name == ENGINE_SPAN and call.row.request_id is not None:
            self._watch_for_twins(hash((span.trace_id, call.row.request_id)))

    def _watch_for_twins(self, request: int) -> None:
        """Prefill and decode instances each write a span of the same request."""
        self.twins += request in self._engine_calls
        if len(self._engine_calls) >= _KNOWN_SPANS:
            self._engine_calls.clear()
        self._engine_calls.add(request)

    def _remember(self, key: int, parent: int | None) -> None:
        self._parents[key] = parent
        if len(self._parents) > _KNOWN_SPANS:
            del self._parents[next(iter(self._parents))]

    def _place(self, call: _Call, around: int | None) -> None:
        """Find the nearest call around this one, or wait for a span that is not there yet."""
        call.waits_for = None
        for _ in range(_MAX_DEPTH):
            if around is None or around == call.key:
                return
            if around in self._calls:
                _put_inside(call, self._calls[around])
                return
            if around not in self._parents:
                waiting = self._waiting.setdefault(around, [])
                if len(waiting) < _MOST_INSIDE:
                    call.waits_for = around
                    waiting.append(call)
                return
            around = self._parents[around]

    def released(self) -> Iterator[RequestRow]:
        """The rows that are held no longer."""
        while self._held and (len(self._held) > _HELD_CALLS or self._held_blocks > _HELD_BLOCKS):
            yield from self._let_go()

    def rest(self) -> Iterator[RequestRow]:
        """The rows still held; no more will come."""
        while self._held:
            yield from self._let_go()

    def _let_go(self) -> Iterator[RequestRow]:
        call = self._held.popleft()
        self._held_blocks -= len(call.row.block_keys or ())
        if call.key is not None:
            self._calls.pop(call.key, None)
        if call.waits_for is not None:
            self._waiting.pop(call.waits_for, None)
        if call.inner:
            self.merged += 1
            return
        self._fill_from_outer(call)
        self._rows += 1
        self._rows_with_blocks += call.row.block_keys is not None
        yield call.row

    def _fill_from_outer(self, call: _Call) -> None:
        """What an outer call knows of this one, if it is the only one in it."""
        row, outer = call.row, call.outer
        for _ in range(_MAX_DEPTH):
            if outer is None:
                return
            for name in _FROM_OUTER if outer.inner == 1 else ("session_id", "user"):
                if getattr(row, name) is None:
                    setattr(row, name, getattr(outer.row, name))
            if outer.inner > 1:
                return
            if call.is_engine:
                self._settle_by_engine(row, outer.row)
            _fill_counts(row, outer.row)
            outer = outer.outer

    def _settle_by_engine(self, row: RequestRow, outer: RequestRow) -> None:
        """The engine counted the whole prompt; the call around it then shows what its count is."""
        told = outer.unsettled
        if told is None or None in (row.prompt_tokens, outer.prompt_tokens):
            return
        lacking = (row.prompt_tokens or 0) - (outer.prompt_tokens or 0)
        if lacking in (0, told.left_out_tokens):
            self.reader.settle(outer, told, row.prompt_tokens or 0)

    def describe(self, context: ReadContext) -> None:
        """Say what was put together, and whether most calls have blocks."""
        self._describe_blocks(context)
        if self.merged:
            context.note(
                "nested_calls_merged",
                f"Calls that hold another call (agent, gateway, engine): {self.merged:,}. The"
                " innermost counts, with what only the outer ones know.",
            )
        if self.twins:
            context.note(
                "engines_share_requests",
                f"Engine spans with the request id of another one of their trace: {self.twins:,}."
                " Prefill and decode apart write a span each, and each is a row here: requests and"
                " prompts are counted twice.",
                severity="warning",
            )
        if self.repeated:
            context.note(
                "repeated_spans",
                f"Spans that stand in the file again: {self.repeated:,}; one counts.",
            )

    def _describe_blocks(self, context: ReadContext) -> None:
        if context.prompt_hasher is not None and 2 * self._rows_with_blocks > self._rows:
            context.prompt_hasher.describe(context)
            context.evidence_grade = "A"
        elif self._rows_with_blocks:
            note_few_prompts(context, self._rows_with_blocks, self._rows)


def _key(trace_id: str, span_id: str) -> int | None:
    return hash((trace_id, span_id)) if span_id else None


def _put_inside(call: _Call, outer: _Call) -> None:
    around: _Call | None = outer
    for _ in range(_MAX_DEPTH):
        if around is None:
            call.outer = outer
            outer.inner += 1
            return
        if around is call:
            return  # spans that hold each other
        around = around.outer


def _fill_counts(row: RequestRow, outer: RequestRow) -> None:
    """Tokens and the first token, where they can be of the same call."""
    if row.prompt_tokens is None:
        row.prompt_tokens, row.unsettled = outer.prompt_tokens, outer.unsettled
    if row.prompt_tokens == outer.prompt_tokens and row.cached_tokens is None:
        row.cached_tokens = outer.cached_tokens
        row.cache_write_tokens = outer.cache_write_tokens
        row.unsettled = outer.unsettled
        row.flags = tuple(dict.fromkeys((*row.flags, *outer.flags)))
    if row.block_keys is None and row.prompt_tokens == outer.prompt_tokens:
        row.block_keys = outer.block_keys
    if row.output_tokens is None:
        row.output_tokens = outer.output_tokens
    longest = row.e2e_ns if row.e2e_ns is not None else outer.e2e_ns
    if row.ttft_ns is None and outer.ttft_ns is not None and outer.ttft_ns <= (longest or 0):
        row.ttft_ns, row.ttft_from = outer.ttft_ns, outer.ttft_from
