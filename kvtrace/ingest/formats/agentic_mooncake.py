"""Dynamo's agentic Mooncake traces: a header, then a JSON line a request of an agent's play.

Shape read from ai-dynamo/dynamo (`schema` "dynamo.agentic_mooncake", version 2): the header states
`block_size` and `hash_id_scope` (local: ids mean something inside one play); requests have
`request_id, play_id, session_id, model, input_length, output_length, hash_ids, not_before_ms,
recorded_api_time_ms, dependencies`. Times are milliseconds from the start of the play.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    count_of,
    decode_json,
    elapsed_ns,
    flag_lengths,
    instant_ns,
    json_record_rows,
)
from kvtrace.ingest.values.rawvalues import id_of

SCHEMA: Final = "dynamo.agentic_mooncake"
_MS: Final = -3
_PLAY_BITS: Final = 40


class _Line(msgspec.Struct, gc=False):
    schema: str | None = None
    version: int | None = None
    block_size: int | None = None
    hash_id_scope: str = "local"
    request_id: str | int | None = None
    play_id: str | int | None = None
    session_id: str | int | None = None
    model: str | None = None
    input_length: int | None = None
    input_tokens: int | None = None
    output_length: int | None = None
    output_tokens: int | None = None
    hash_ids: list[int] | None = None
    not_before_ms: Decimal | None = None
    recorded_api_time_ms: Decimal | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)


class _AgenticFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._plays: dict[str, int] = {}
        self._turns: dict[tuple[int, str], int] = {}
        self._with_blocks = 0

    def rows(self, record: Record) -> list[RequestRow] | Ignored:
        """The request of one line.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        line = decode_json(_DECODER, record.data)
        if line.schema is not None:
            return self._header(line)
        length = line.input_length if line.input_length is not None else line.input_tokens
        if length is None:
            raise msgspec.ValidationError("no `input_length`")
        output = line.output_length if line.output_length is not None else line.output_tokens
        play = self._plays.setdefault(id_of(line.play_id) or "", len(self._plays))
        if play >= 1 << (64 - _PLAY_BITS):
            raise msgspec.ValidationError("more plays than a file may hold")
        session = id_of(line.session_id)
        flags: list[str] = []
        arrived_at_ns = instant_ns("not_before_ms", line.not_before_ms, self._context, power=_MS)
        if arrived_at_ns is not None and arrived_at_ns < 0:
            raise msgspec.ValidationError("`not_before_ms` is negative")
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=_in_play(line.play_id, line.request_id),
            session_id=_in_play(line.play_id, line.session_id),
            llm=line.model,
            arrived_at_ns=arrived_at_ns,
            prompt_tokens=count_of("input_length", length),
            output_tokens=count_of("output_length", output),
            e2e_ns=elapsed_ns("recorded_api_time_ms", line.recorded_api_time_ms, flags, power=_MS),
            block_keys=self._keys(line.hash_ids, play),
        )
        if session is not None:
            row.turn = self._turns.get((play, session), 0)
            self._turns[play, session] = row.turn + 1
        row.flags = tuple(flags)
        flag_lengths(row)
        return [row]

    def _header(self, line: _Line) -> Ignored:
        context = self._context
        if line.schema != SCHEMA or line.block_size is None or not 0 < line.block_size <= 1 << 20:
            raise msgspec.ValidationError("`schema` or `block_size` is not that of a header")
        size = context.block_size_tokens or line.block_size
        if context.found_block_size_tokens not in (None, size):
            raise msgspec.ValidationError("`block_size` is not that of the first header")
        context.found_block_size_tokens = size
        return Ignored("header")

    def _keys(self, ids: list[int] | None, play: int) -> list[int] | None:
        """Ids numbered apart by play, outside of which they mean nothing."""
        if ids is None:
            return None
        if ids and not (min(ids) >= 0 and max(ids) < 1 << _PLAY_BITS):
            raise msgspec.ValidationError("`hash_ids` holds an id out of range")
        self._with_blocks += 1
        base = play << _PLAY_BITS
        return [base + block for block in ids]

    def describe(self) -> None:
        """Write down clock and blocks."""
        context = self._context
        context.block_scope, context.partial_tail = "file", "counted"
        context.block_size_reason = f"{context.found_block_size_tokens} from the header"
        if not self._with_blocks or context.found_block_size_tokens is None:
            context.evidence_grade = "L"
        if len(self._plays) <= 1:
            context.clock = "relative"
            context.clock_reason = "not_before_ms counts milliseconds from the start of the play"
            return
        context.clock_reason = "not_before_ms counts from the start of each play: no common clock"
        context.note(
            "no_common_clock",
            f"the file holds {len(self._plays):,} plays, each with times from its own start: they"
            " are read in file order, without arrival times",
            severity="warning",
        )


def _in_play(play: str | int | None, name: str | int | None) -> str | None:
    """An id that is unique in the file: plays use the same ones."""
    own = id_of(name)
    return None if own is None else f"{id_of(play) or ''}/{own}"


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _AgenticFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    if not any(entry.get("schema") == SCHEMA for entry in head.json_objects[:3]):
        return None
    return Guess(0.99, f"a header says {SCHEMA}")


FORMATS: tuple[Format, ...] = (
    Format(
        name="agentic_mooncake",
        title="Dynamo agentic Mooncake trace (JSON lines with a header)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "turn",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "e2e_ns",
            "block_keys",
        ),
        missing={
            "cached_tokens": "the ids say what could be reused; the engine's request log of the"
            " same requests",
            "ttft": "Dynamo's request trace (`DYN_REQUEST_TRACE=1`)",
            "queue": "the engine's own logs",
        },
        versions="ai-dynamo/dynamo loadgen, schema dynamo.agentic_mooncake version 2",
        sniff=_sniff,
        read=_read,
        enable_hint="Dynamo: `DYN_REQUEST_TRACE=1`, then convert the trace to agentic Mooncake",
    ),
)
