"""TensorRT-LLM's metrics per request: times on a steady clock, reused blocks, KV hand-off.

Records read from the sources of TensorRT-LLM 1.0 to 1.2 and 2026 builds (`return_perf_metrics`),
one a line or in an array:

- an item of `/perf_metrics`: `{"request_id", "perf_metrics": {"timing_metrics", …}}`;
- of the disaggregated server: `{"ctx_perf_metrics": item, "gen_perf_metrics": item, …}`;
- the file of `schema_version` 1: `{"request_id", "status", "phases": {"server"|"ctx"|"gen": …}}`.

Reuse is counted in blocks of this request: reused blocks × tokens of a block, at most the prompt
but its last token, which is always computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import (
    Format,
    Guess,
    Head,
    ReadContext,
    Record,
    RequestRow,
    Row,
    TransferRow,
)
from kvtrace.ingest.values.jsonfields import (
    between_ns,
    count_of,
    decode_json,
    flag_lengths,
    instant_ns,
    json_record_rows,
    keys_of,
    mean_per_token_ns,
)
from kvtrace.schema.manifest import Status

DEFAULT_BLOCK_TOKENS: Final = 32
"""Tokens of a KV block unless configured (TensorRT-LLM KvCacheConfig.tokens_per_block, 1.x)."""
_STATUS: Final[dict[str, Status]] = {
    "complete": "ok",
    "completed": "ok",
    "success": "ok",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "aborted": "cancelled",
    "error": "error",
    "failed": "error",
    "timeout": "error",
    "incomplete": "open",
    "in_progress": "open",
}


class _Timing(msgspec.Struct, gc=False):
    arrival_time: Decimal | None = None
    first_scheduled_time: Decimal | None = None
    first_token_time: Decimal | None = None
    last_token_time: Decimal | None = None
    kv_cache_transfer_start: Decimal | None = None
    kv_cache_transfer_end: Decimal | None = None
    kv_cache_size: int | None = None


class _Blocks(msgspec.Struct, gc=False):
    num_reused_blocks: int | None = None
    num_missed_blocks: int | None = None


class _Phase(msgspec.Struct, gc=False):
    timing_metrics: _Timing | None = None
    kv_cache_metrics: _Blocks | None = None


class _Item(msgspec.Struct, gc=False):
    request_id: str | int | None = None
    perf_metrics: _Phase | None = None


class _Phases(msgspec.Struct, gc=False):
    server: _Phase | None = None
    ctx: _Phase | None = None
    gen: _Phase | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Record(_Item, gc=False):
    ctx_perf_metrics: _Item | None = None
    gen_perf_metrics: _Item | None = None
    phases: _Phases | None = None
    status: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    prompt_len: int | None = None
    completion_tokens: int | None = None
    usage: _Usage | None = None


_DECODER: Final = msgspec.json.Decoder(_Record, strict=False)


class _Halves(msgspec.Struct, gc=False, frozen=True):
    """One request: where its prompt was computed, and where its tokens came from."""

    request_id: str | None
    prefill: _Phase
    decode: _Phase

    @property
    def is_split(self) -> bool:
        return self.prefill is not self.decode


def _halves(raw: _Record) -> _Halves:
    """The halves of a record of any of the three shapes.

    Raises:
        msgspec.ValidationError: it holds no metrics.
    """
    phases = raw.phases or _Phases()
    ctx_item, gen_item = raw.ctx_perf_metrics or _Item(), raw.gen_perf_metrics or _Item()
    whole = raw.perf_metrics or phases.server
    prefill = whole or phases.ctx or ctx_item.perf_metrics
    decode = whole or phases.gen or gen_item.perf_metrics
    ids = (raw.request_id, ctx_item.request_id, gen_item.request_id)
    request_id = next((str(known) for known in ids if known is not None), None)
    only = prefill or decode
    if only is None:
        raise msgspec.ValidationError("neither `perf_metrics` nor metrics of a phase")
    return _Halves(request_id, prefill or only, decode or only)


class _MetricsFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._block_tokens = context.block_size_tokens or DEFAULT_BLOCK_TOKENS
        self.split = 0

    def rows(self, record: Record) -> list[Row]:
        """The request of one record, and the hand-off of its KV.

        Raises:
            msgspec.DecodeError: not JSON, or a field is missing, of the wrong type, out of range.
        """
        raw = decode_json(_DECODER, record.data)
        halves = _halves(raw)
        usage = raw.usage or _Usage()
        prompt = next(
            (n for n in (raw.prompt_tokens, raw.prompt_len, usage.prompt_tokens) if n is not None),
            None,
        )
        output = usage.completion_tokens if raw.completion_tokens is None else raw.completion_tokens
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=halves.request_id,
            llm=raw.model,
            prompt_tokens=count_of("prompt_tokens", prompt),
            output_tokens=count_of("completion_tokens", output),
            status=_STATUS.get((raw.status or "complete").lower(), "ok"),
        )
        self._fill_times(row, halves)
        row.cached_tokens = self._cached_tokens(row, halves.prefill.kv_cache_metrics)
        flag_lengths(row)
        return [row, *self._hand_off(row, halves)]

    def _fill_times(self, row: RequestRow, halves: _Halves) -> None:
        """Differences on one clock; two servers have two, so a split request has no common one.

        Formula: queue = scheduled - arrival; prefill = first token - scheduled; ttft = first token
        - arrival; e2e = last token - arrival; tpot = (last - first token) / (output - 1).
        """
        flags: list[str] = []
        first = halves.prefill.timing_metrics or _Timing()
        arrived = self._steady_ns("arrival_time", first.arrival_time)
        scheduled = self._steady_ns("first_scheduled_time", first.first_scheduled_time)
        token = self._steady_ns("first_token_time", first.first_token_time)
        row.arrived_at_ns = arrived
        row.queue_ns = between_ns(arrived, scheduled, flags)
        row.prefill_ns = between_ns(scheduled, token, flags)
        row.ttft_ns = between_ns(arrived, token, flags)
        row.ttft_from = None if row.ttft_ns is None else "arrival"
        later = halves.decode.timing_metrics or _Timing()
        last = self._steady_ns("last_token_time", later.last_token_time)
        begun = self._steady_ns("first_token_time", later.first_token_time)
        row.tpot_ns = mean_per_token_ns(between_ns(begun, last, flags), row.output_tokens)
        if halves.is_split:
            self.split += 1
        else:
            row.e2e_ns = between_ns(arrived, last, flags)
        row.flags = tuple(flags)

    def _steady_ns(self, name: str, value: Decimal | None) -> int | None:
        """Nanoseconds of the steady clock; 0.0 is a time that was not set."""
        return instant_ns(name, value, self._context) if value else None

    def _cached_tokens(self, row: RequestRow, blocks: _Blocks | None) -> int | None:
        """Reused blocks in tokens, at most the prompt but its last token."""
        if blocks is None or blocks.num_reused_blocks is None:
            return None
        reused = count_of("num_reused_blocks", blocks.num_reused_blocks) or 0
        missed = count_of("num_missed_blocks", blocks.num_missed_blocks)
        if reused == 0 and missed == 0:
            return None  # nothing was looked up
        if self._context.block_size_tokens is None and reused:
            self._context.note(
                "block_size_assumed",
                f"Reuse is counted in blocks and the file does not state their size:"
                f" {DEFAULT_BLOCK_TOKENS} tokens, TensorRT-LLM's default, are taken"
                " (--block-size states another).",
            )
        tokens = count_of("num_reused_blocks", reused * self._block_tokens) or 0
        return tokens if row.prompt_tokens is None else min(tokens, max(row.prompt_tokens - 1, 0))

    def _hand_off(self, row: RequestRow, halves: _Halves) -> list[TransferRow]:
        """The move of KV between the halves, as the side that received it measured it.

        Its start is known only where it is on the clock of the arrivals.
        """
        timing = next(
            (
                found
                for half in (halves.decode, halves.prefill)
                if (found := half.timing_metrics) is not None and found.kv_cache_transfer_end
            ),
            None,
        )
        if timing is None:
            return []
        flags: list[str] = []
        start = self._steady_ns("kv_cache_transfer_start", timing.kv_cache_transfer_start)
        end = self._steady_ns("kv_cache_transfer_end", timing.kv_cache_transfer_end)
        duration = between_ns(start, end, flags)
        row.flags = tuple(dict.fromkeys((*row.flags, *flags)))
        if duration is None:
            return []
        move = TransferRow(
            offset=row.offset,
            line=row.line,
            request_id=row.request_id,
            started_at_ns=None if halves.is_split else start,
            direction="hand_off",
            path="prefill>decode",
            moved_bytes=count_of("kv_cache_size", timing.kv_cache_size),
            moved_tokens=None,
            duration_ns=duration,
            ranks=None,
        )
        return [move]


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _MetricsFile(context)
    context.engine = "tensorrt_llm"
    yield from json_record_rows(records, context.tally, file.rows)
    if context.clock_resolution_ns is not None:
        context.clock = "monotonic"
        context.clock_reason = "times are seconds of the server's steady clock"
    if file.split:
        context.note(
            "two_steady_clocks",
            "Where prefill and decode ran on different servers, their steady clocks have nothing in"
            " common: arrival to last token is unknown, and TTFT is that of the prefill server"
            f" (requests concerned: {file.split}).",
        )


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0 or 2 * ours < len(objects):
        return None
    return Guess(
        0.7 + 0.28 * ours / len(objects),
        f"{ours} of {len(objects)} records have TensorRT-LLM's timing_metrics of a request",
    )


def _is_ours(item: dict[str, object]) -> bool:
    phases = item.get("phases")
    candidates: list[object] = [item.get("perf_metrics")]
    if isinstance(phases, dict):
        candidates += phases.values()
    for name in ("ctx_perf_metrics", "gen_perf_metrics"):
        half = item.get(name)
        candidates.append(half.get("perf_metrics") if isinstance(half, dict) else None)
    return any(keys_of(found) & {"timing_metrics", "kv_cache_metrics"} for found in candidates)


FORMATS: tuple[Format, ...] = (
    Format(
        name="trtllm_request_metrics",
        title="TensorRT-LLM metrics per request (JSON)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
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
            "transfers",
        ),
        missing={
            "prompt_tokens": "usage of the responses, in a gateway log",
            "arrivals": "times are a steady clock; the iteration log"
            " (print_iter_log: true) has dates",
            "reuse": "block identity: event_buffer_max_size > 0 in"
            " kv_cache_config, and POST /kv_cache_events written to a file",
            "cached_tokens": "kv_cache_config.tokens_per_block, given as --block-size",
        },
        versions="TensorRT-LLM 1.0 to 1.2 /perf_metrics of server and disaggregated server;"
        " JSON lines of schema_version 1 (2026)",
        sniff=_sniff,
        read=_read,
        enable_hint="return_perf_metrics: true and perf_metrics_max_requests: 100000 in the"
        " trtllm-serve YAML; poll GET /perf_metrics into a file",
    ),
)
