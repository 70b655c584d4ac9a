"""NVIDIA Dynamo's request trace: JSON lines with lengths, times and the block hashes of a prompt.

Lines read from the sources of Dynamo: `dynamo.request.trace.v1` (1.0 to 1.6), the older
`dynamo.agent.trace.v1`, and the recorder's wrapping `{"timestamp": …, "event": {…}}` of either.
Hashes are unsigned 64 bit and rolling: each names the whole prefix that ends in its block. The
last one covers a partial block where the length is no multiple of the block size (130 tokens in
blocks of 64 give 3), so a longer follow-up never has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

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
from kvtrace.schema.manifest import Status

_SCHEMAS: Final = ("dynamo.request.trace.", "dynamo.agent.trace.")
_OTHER_EVENTS: Final = frozenset({"tool_start", "tool_end", "tool_error", "request_payload"})
_STATUS: Final[dict[str, Status]] = {
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "abort": "cancelled",
    "aborted": "cancelled",
    "error": "error",
}
_MS: Final = -3
_MAX_BLOCK_TOKENS: Final = 1 << 20


class _Replay(msgspec.Struct, gc=False):
    trace_block_size: int
    input_length: int
    input_sequence_hashes: list[int]


class _Finish(msgspec.Struct, gc=False):
    finish_reason: object = None


class _Worker(msgspec.Struct, gc=False):
    prefill_worker_id: int | str | None = None
    decode_worker_id: int | str | None = None


class _Request(msgspec.Struct, gc=False):
    request_id: str | int | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    request_received_ms: Decimal | None = None
    prefill_wait_time_ms: Decimal | None = None
    prefill_time_ms: Decimal | None = None
    ttft_ms: Decimal | None = None
    total_time_ms: Decimal | None = None
    avg_itl_ms: Decimal | None = None
    worker: _Worker | None = None
    replay: _Replay | None = None
    finish_reason_metadata: _Finish | None = None


class _Agent(msgspec.Struct, gc=False):
    session_id: str | None = None
    trajectory_id: str | None = None
    program_id: str | None = None


class _Event(msgspec.Struct, gc=False):
    schema: str | None = None
    event_type: str | None = None
    agent_context: _Agent | None = None
    request: _Request | None = None


class _Line(_Event, gc=False):
    event: _Event | None = None


_DECODER: Final = msgspec.json.Decoder(_Line, strict=False)


class _Trace:
    """The state of one file: its block size, and what its rows turned out to hold."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.block_size: int | None = None
        self.with_blocks = 0
        self.other_sizes = 0
        self.disaggregated = 0

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of a `request_end` record; the others carry none.

        Raises:
            msgspec.DecodeError: not JSON, or a field is missing, of the wrong type, out of range.
        """
        line = decode_json(_DECODER, record.data)
        event = line.event or line
        if event.schema is None or not event.schema.startswith(_SCHEMAS):
            raise msgspec.ValidationError("`schema` names no request trace of Dynamo")
        if event.event_type != "request_end":
            known = event.event_type if event.event_type in _OTHER_EVENTS else None
            return Ignored(known or "other_event")
        if event.request is None:
            raise msgspec.ValidationError("`request_end` without `request`")
        return [self._row(record, event.request, event.agent_context or _Agent())]

    def _row(self, record: Record, raw: _Request, agent: _Agent) -> RequestRow:
        flags: list[str] = []
        keys = self._keys(raw.replay, flags)
        length = None if raw.replay is None else count_of("input_length", raw.replay.input_length)
        prompt = count_of("input_tokens", raw.input_tokens)
        if prompt is not None and length is not None and prompt != length:
            flags.append("total_mismatch")
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=None if raw.request_id is None else str(raw.request_id),
            session_id=agent.session_id or agent.trajectory_id or agent.program_id,
            llm=raw.model,
            arrived_at_ns=instant_ns(
                "request_received_ms", raw.request_received_ms, self._context, power=_MS
            ),
            prompt_tokens=length if prompt is None else prompt,
            cached_tokens=count_of("cached_tokens", raw.cached_tokens),
            output_tokens=count_of("output_tokens", raw.output_tokens),
            status=_status(raw.finish_reason_metadata),
            block_keys=keys,
        )
        _fill_times(row, raw, flags)
        row.flags = tuple(flags)
        flag_lengths(row)
        self._count_hand_off(raw)
        return row

    def _count_hand_off(self, raw: _Request) -> None:
        worker = raw.worker
        if worker is not None and None not in (worker.prefill_worker_id, worker.decode_worker_id):
            self.disaggregated += worker.prefill_worker_id != worker.decode_worker_id

    def _keys(self, replay: _Replay | None, flags: list[str]) -> list[int] | None:
        """Block keys, as the trace states them; None where they are of another block size."""
        if replay is None:
            return None
        size, hashes = replay.trace_block_size, replay.input_sequence_hashes
        if not 0 < size <= _MAX_BLOCK_TOKENS:
            raise msgspec.ValidationError("`trace_block_size` is no block size")
        if hashes and not 0 <= min(hashes) <= max(hashes) <= MAX_UINT64:
            raise msgspec.ValidationError("`input_sequence_hashes` holds a hash outside 64 bits")
        if self.block_size is None:
            self.block_size = size
        if size != self.block_size:
            self.other_sizes += 1
            flags.append("other_block_size")
            return None
        self.with_blocks += 1
        return hashes

    def describe(self) -> None:
        """Write down clock, blocks and what a reader of the rows must know."""
        context = self._context
        if context.clock_resolution_ns is not None:
            context.clock, context.clock_reason = "utc", "request_received_ms is epoch time"
        if self.block_size is not None:
            context.found_block_size_tokens = self.block_size
            context.block_size_reason = (
                f"trace_block_size of {self.with_blocks} of {self.with_blocks + self.other_sizes}"
                " rows with hashes"
            )
        if self.other_sizes:
            context.note(
                "other_block_size",
                f"{self.other_sizes} rows have hashes of another block size than the first"
                f" ({self.block_size} tokens); they are kept without blocks.",
                severity="warning",
            )
        if self.disaggregated:
            context.note(
                "ttft_before_hand_off",
                "TTFT is that of the prefill worker where another one decodes: the hand-off of KV"
                f" is not in it (requests concerned: {self.disaggregated}).",
            )
        context.note(
            "rows_may_be_missing",
            "Dynamo drops trace rows when its bus is full and writes none for n > 1, best_of > 1,"
            " multimodal and embedding requests; the file does not count them. Compare with"
            " dynamo_frontend_requests_total.",
        )


def _fill_times(row: RequestRow, raw: _Request, flags: list[str]) -> None:
    row.queue_ns = elapsed_ns("queue", raw.prefill_wait_time_ms, flags, power=_MS)
    row.prefill_ns = elapsed_ns("prefill", raw.prefill_time_ms, flags, power=_MS)
    row.ttft_ns = elapsed_ns("ttft", raw.ttft_ms, flags, power=_MS)
    row.ttft_from = None if row.ttft_ns is None else "arrival"
    row.tpot_ns = elapsed_ns("tpot", raw.avg_itl_ms, flags, power=_MS)
    row.e2e_ns = elapsed_ns("e2e", raw.total_time_ms, flags, power=_MS)


def _status(finish: _Finish | None) -> Status:
    reason = None if finish is None else finish.finish_reason
    return _STATUS.get(reason.lower(), "ok") if isinstance(reason, str) else "ok"


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    trace = _Trace(context)
    context.engine = "dynamo"
    context.block_ids, context.block_scope, context.partial_tail = "chained", "global", "counted"
    yield from json_record_rows(records, context.tally, trace.rows)
    trace.describe()


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0 or 2 * ours < len(objects):
        return None
    return Guess(
        0.7 + 0.29 * ours / len(objects),
        f"{ours} of {len(objects)} records have the schema of Dynamo's request trace",
    )


def _is_ours(item: dict[str, object]) -> bool:
    inner = item.get("event")
    schema = (inner if isinstance(inner, dict) else item).get("schema")
    return isinstance(schema, str) and schema.startswith(_SCHEMAS)


FORMATS: tuple[Format, ...] = (
    Format(
        name="dynamo_request_trace",
        title="NVIDIA Dynamo request trace (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "queue_ns",
            "prefill_ns",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
            "block_keys",
        ),
        missing={
            "tier_split": "the KVBM lines of the same workers (on by default with"
            " KVBM: `request set to finish: cached_gpu_tokens: …`)",
            "moves": "KVBM metrics (DYN_KVBM_METRICS=true); the trace has"
            " only an estimate of the hand-off",
            "cached_tokens": "agent or session headers on the"
            " requests; without them a row may hold only lengths and hashes",
        },
        versions="Dynamo 1.0 to 1.6, dynamo.request.trace.v1 (request trace module of the"
        " runtime); dynamo.agent.trace.v1 before it",
        sniff=_sniff,
        read=_read,
        enable_hint="DYN_REQUEST_TRACE=1 on the frontend; it writes"
        " /tmp/dynamo-request-trace.NNNNNN.jsonl.gz",
    ),
)
