"""Workloads of LLMServingSim: single requests, and sessions of chained calls.

`arrival_time_ns` counts from the start. Of a session only the first call has an arrival: the others
start when the one before has ended and its tool has run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.jsonfields import count_of, decode_json, flag_lengths, json_record_rows
from kvtrace.ingest.values.rawvalues import id_of

MISMATCH_FLAG: Final = "token_count_mismatch"


class _Call(msgspec.Struct, gc=False):
    input_toks: int | None = None
    output_toks: int | None = None
    input_tok_ids: list[int] | None = None


class _Line(_Call, gc=False):
    request_id: str | int | None = None
    session_id: str | int | None = None
    arrival_time_ns: int | None = None
    sub_requests: list[_Call] | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)


class _Requests:
    """The requests of one file."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._timed = self._chained = 0

    def rows(self, record: Record) -> list[RequestRow]:
        """The requests of one line.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        line = decode_json(_DECODER, record.data)
        arrived_at_ns = self._arrival(line)
        if line.sub_requests is None:
            row = self._row(record, line, arrived_at_ns)
            row.request_id, row.session_id = id_of(line.request_id), id_of(line.session_id)
            return [row]
        if not line.sub_requests:
            raise msgspec.ValidationError("`sub_requests` is empty")
        rows = [
            self._row(record, call, None if turn else arrived_at_ns)
            for turn, call in enumerate(line.sub_requests)
        ]
        session = id_of(line.session_id) or f"line {record.line}"
        for turn, row in enumerate(rows):
            row.session_id, row.turn = session, turn
        self._chained += len(rows) - 1
        return rows

    def _row(self, record: Record, call: _Call, arrived_at_ns: int | None) -> RequestRow:
        if call.input_toks is None:
            raise msgspec.ValidationError("no `input_toks`")
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            arrived_at_ns=arrived_at_ns,
            prompt_tokens=count_of("input_toks", call.input_toks),
            output_tokens=count_of("output_toks", call.output_toks),
        )
        self._add_blocks(row, call.input_tok_ids)
        flag_lengths(row)
        return row

    def _add_blocks(self, row: RequestRow, ids: list[int] | None) -> None:
        hasher = self._context.prompt_hasher
        if ids is None or hasher is None:
            return
        if len(ids) != row.prompt_tokens:
            row.flags = (*row.flags, MISMATCH_FLAG)
            return
        made = hasher.token_ids(ids)
        row.block_keys = None if made is None else made.keys

    def _arrival(self, line: _Line) -> int | None:
        ns = line.arrival_time_ns
        if ns is None:
            return None
        if not 0 <= ns <= INT64_MAX:
            raise msgspec.ValidationError("`arrival_time_ns` is no time since the start")
        self._timed += 1
        return ns

    def describe(self) -> None:
        """Write down clock, blocks and what has no arrival."""
        context = self._context
        if self._timed:
            context.clock, context.clock_resolution_ns = "relative", 1
            context.clock_reason = "arrival_time_ns counts from the start of the workload"
        if context.prompt_hasher is not None:
            context.prompt_hasher.describe(context)
        if self._chained:
            context.note(
                "arrival_unknown",
                f"{self._chained:,} calls of sessions start when the call before has ended and its"
                " tool has run: the workload does not say when",
            )


def read_requests(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """Rows of a workload, in file order."""
    requests = _Requests(context)
    yield from json_record_rows(records, context.tally, requests.rows)
    requests.describe()
