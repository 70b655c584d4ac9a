"""Weka / AgentX conversations: one JSON object a conversation of a coding agent.

Shape read from kv-cache-tester's traces (callanjfox), the cc-traces-weka corpora (the same object,
one a line) and the loader of AIPerf 0.13. `t`, `api_time` and `ttft` are seconds, counted from the
start of the conversation; requests of type `n` are plain, of type `s` streamed (these may have a
`ttft`), and `subagent` holds the requests of an agent that the conversation started. Block ids are
prefix-chained, 64 tokens a block, the partial last block left out. With the scope `local` they
restart in each conversation, whose agents share them; with `global` they mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec
import xxhash

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.jsonfields import (
    MAX_UINT64,
    Ignored,
    count_of,
    decode_json,
    elapsed_ns,
    flag_lengths,
    instant_ns,
    json_record_rows,
)
from kvtrace.ingest.values.rawvalues import id_of
from kvtrace.units import MIB

DEFAULT_BLOCK_TOKENS: Final = 64
_SCOPES: Final = ("local", "global")
_LOCAL_ID_BITS: Final = 40
_MAX_CONVERSATIONS: Final = 1 << (64 - _LOCAL_ID_BITS)
_AGENT: Final = b'"subagent"'
_MAX_DEPTH: Final = 16
_HEAD_CHARS: Final = 4096
_MAX_RECORD_BYTES: Final = 512 * MIB
"""Limit of one conversation; the longest public ones take some 20 MB."""


class _Conversation(msgspec.Struct, gc=False):
    requests: list[msgspec.Raw]
    id: str | int | None = None
    block_size: int = DEFAULT_BLOCK_TOKENS
    hash_id_scope: str = "local"


class _Entry(msgspec.Struct, gc=False):
    t: Decimal | None = None
    type: str = "n"
    model: str | None = None
    prompt: int | None = msgspec.field(default=None, name="in")
    output: int | None = msgspec.field(default=None, name="out")
    hash_ids: list[int] | None = None
    api_time: Decimal | None = None
    ttft: Decimal | None = None
    agent_id: str | int | None = None
    requests: list[msgspec.Raw] | None = None


_CONVERSATION: Final = msgspec.json.Decoder(_Conversation)
_ENTRY: Final = msgspec.json.Decoder(_Entry)


class _WekaFile:
    """The conversations of one file."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._seen: set[int] = set()
        self._rows: list[RequestRow] = []
        self._record = Record(0, 0, b"")
        self._counts_from_agent = False
        self.conversations = 0
        self.scope: str | None = None
        self.bad_requests = self.shifted_agents = self.with_blocks = 0

    def rows(self, record: Record) -> list[RequestRow] | Ignored:
        """The requests of one conversation and of its agents, in the order of the file.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        talk = decode_json(_CONVERSATION, record.data)
        self._check(talk)
        copy = xxhash.xxh3_64_intdigest(b"\0".join(map(bytes, talk.requests)))
        if copy in self._seen:
            return Ignored("duplicate_conversation")
        if not talk.requests:
            return Ignored("empty_conversation")
        self._record, self._rows = record, []
        session = id_of(talk.id) or f"conversation {self.conversations}"
        self._counts_from_agent = self._count_anew(talk.requests)
        before = self.bad_requests
        self._walk(talk.requests, session, is_agent=False, start_ns=0, depth=0)
        if not self._rows and self.bad_requests > before:
            self.bad_requests = before
            raise msgspec.ValidationError("no request of `requests` can be used")
        self._seen.add(copy)
        self.conversations += 1
        return self._rows

    def _check(self, talk: _Conversation) -> None:
        """Refuse what cannot stand beside the conversations before it."""
        context = self._context
        if talk.hash_id_scope not in _SCOPES:
            raise msgspec.ValidationError("`hash_id_scope` is neither local nor global")
        if not 0 < talk.block_size <= 1 << 20:
            raise msgspec.ValidationError("`block_size` is no block size")
        size = context.block_size_tokens or talk.block_size
        known = context.found_block_size_tokens
        if known not in (None, size) or self.scope not in (None, talk.hash_id_scope):
            raise msgspec.ValidationError("`block_size` or `hash_id_scope` is not the file's")
        if self.conversations >= _MAX_CONVERSATIONS:
            raise msgspec.ValidationError("more conversations than a file may hold")
        context.found_block_size_tokens, self.scope = size, talk.hash_id_scope

    def _walk(
        self,
        requests: list[msgspec.Raw],
        session: str,
        *,
        is_agent: bool,
        start_ns: int,
        depth: int,
    ) -> None:
        """Enter the requests of a conversation or of one agent, which has its own turns."""
        turn = 0
        for raw in requests:
            try:
                entry = _ENTRY.decode(raw)
                if entry.type == "subagent":
                    self._agent(entry, session, start_ns, depth)
                    continue
                row = self._row(entry, session, turn, start_ns)
            except (msgspec.DecodeError, RecursionError):
                self.bad_requests += 1
                continue
            row.request_type = "subagent" if is_agent else None
            self._rows.append(row)
            turn += 1

    def _agent(self, entry: _Entry, session: str, start_ns: int, depth: int) -> None:
        """Enter an agent's requests; one that is still running when it was noted has none."""
        if depth >= _MAX_DEPTH:
            raise msgspec.ValidationError("`requests` is nested too deeply")
        own_start_ns = self._arrival(entry.t, start_ns)
        requests = entry.requests or []
        name = id_of(entry.agent_id) or f"agent {len(self._rows)}"
        base_ns = start_ns
        if own_start_ns is not None and self._counts_from_agent:
            base_ns = own_start_ns
            self.shifted_agents += 1
        self._walk(requests, f"{session}/{name}", is_agent=True, start_ns=base_ns, depth=depth + 1)

    def _count_anew(self, requests: list[msgspec.Raw]) -> bool:
        """Whether agents' times count from their own start: one has a request before that."""
        for raw in requests:
            if _AGENT not in bytes(raw):
                continue
            try:
                agent = _ENTRY.decode(raw)
                inner = [_ENTRY.decode(request) for request in agent.requests or []]
            except (msgspec.DecodeError, RecursionError):
                continue
            start, times = agent.t, [entry.t for entry in inner if entry.t is not None]
            if start is None or not start.is_finite():
                continue
            if any(time.is_finite() and time < start for time in times):
                return True
        return False

    def _arrival(self, seconds: Decimal | None, start_ns: int) -> int | None:
        ns = instant_ns("t", seconds, self._context)
        if ns is None:
            return None
        if ns < 0 or ns + start_ns > 1 << 62:
            raise msgspec.ValidationError("`t` is no time since the start")
        return ns + start_ns

    def _row(self, entry: _Entry, session: str, turn: int, start_ns: int) -> RequestRow:
        flags: list[str] = []
        ttft_ns = elapsed_ns("ttft", entry.ttft, flags)
        row = RequestRow(
            offset=self._record.offset,
            line=self._record.line,
            session_id=session,
            turn=turn,
            llm=entry.model,
            arrived_at_ns=self._arrival(entry.t, start_ns),
            prompt_tokens=count_of("in", entry.prompt),
            output_tokens=count_of("out", entry.output),
            ttft_ns=ttft_ns,
            ttft_from=None if ttft_ns is None else "client",
            e2e_ns=elapsed_ns("api_time", entry.api_time, flags),
            block_keys=self._keys(entry.hash_ids),
            flags=tuple(flags),
        )
        flag_lengths(row)
        return row

    def _keys(self, ids: list[int] | None) -> list[int] | None:
        """Ids as they are, or numbered apart by conversation where they mean nothing outside it."""
        if ids is None:
            return None
        self.with_blocks += 1
        is_local = self.scope == "local"
        limit = (1 << _LOCAL_ID_BITS) - 1 if is_local else MAX_UINT64
        if ids and not (min(ids) >= 0 and max(ids) <= limit):
            raise msgspec.ValidationError("`hash_ids` holds an id out of range")
        if not is_local or not self.conversations:
            return ids
        base = self.conversations << _LOCAL_ID_BITS
        return [base + block for block in ids]

    def describe(self) -> None:
        """Write down clock, blocks and what was left out."""
        context = self._context
        context.block_scope = "global" if self.scope == "global" else "file"
        context.partial_tail = "dropped"
        context.block_size_reason = (
            f"{context.found_block_size_tokens} from "
            f"{'--block-size' if context.block_size_tokens else 'block_size of the conversation'}"
        )
        if not self.with_blocks:
            context.evidence_grade = "L"
        self._describe_clock()
        if self.bad_requests:
            context.note(
                "requests_left_out",
                f"{self.bad_requests:,} requests inside conversations cannot be used and are left"
                " out; the conversations are kept without them",
                severity="warning",
            )
        if self.shifted_agents:
            context.note(
                "agent_clock_assumed",
                f"requests of agents lie before the agent's start, so that the times of the"
                f" {self.shifted_agents:,} agents count from there",
            )

    def _describe_clock(self) -> None:
        context = self._context
        if self.conversations <= 1:
            context.clock = "relative"
            context.clock_reason = "t counts seconds from the start of the conversation"
            return
        context.clock_reason = "t counts from the start of each conversation: no common clock"
        context.note(
            "no_common_clock",
            f"the file holds {self.conversations:,} conversations, each with times from its own"
            " start: they are read in file order, without arrival times",
            severity="warning",
        )


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _WekaFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum({"hash_id_scope", "requests"} <= entry.keys() for entry in objects)
    if ours and 2 * ours >= len(objects):
        return Guess(0.99, f"{ours} of {len(objects)} objects have hash_id_scope and requests")
    start = head.text[:_HEAD_CHARS]
    if not ours and start.lstrip()[:1] in ("{", "[") and _has_keys(start):
        return Guess(0.95, "a long object that begins with hash_id_scope and requests")
    return None


def _has_keys(start: str) -> bool:
    return all(f'"{name}"' in start for name in ("hash_id_scope", "requests", "hash_ids", "t"))


FORMATS: tuple[Format, ...] = (
    Format(
        name="weka",
        title="Weka / AgentX agent conversations (JSON)",
        framing="json",
        best_grade="A",
        holds_one_conversation=True,
        supplies=(
            "session_id",
            "turn",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "ttft_ns",
            "e2e_ns",
            "block_keys",
        ),
        missing={
            "cached_tokens": "the ids say what could be reused, not what was: the provider's usage"
            " (cache_read_input_tokens) of the same calls",
            "queue": "the calls went to a hosted API; engine logs of your own service",
        },
        versions="callanjfox/kv-cache-tester traces, cc-traces-weka corpora (one conversation a"
        " line), AIPerf 0.13 weka_trace",
        sniff=_sniff,
        read=_read,
        enable_hint="a public data set; the proxy of kv-cache-tester records your own agents so",
        max_record_bytes=_MAX_RECORD_BYTES,
    ),
)
