"""inference-perf's `per_request_lifecycle_metrics.json`: an array, one object a request.

Shape read from the sources of inference-perf 0.2 to 0.7. Times are seconds of the client's
monotonic clock. `server_usage` is the server's count and wins; `input_tokens` and `output_tokens`
are the client's where the server gave none. Requests and responses stand in the file in full: of
the request only the model's name is read, of the response nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.bench_counts import CountBook, fill_counts
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    between_ns,
    count_of,
    decode_json,
    flag_lengths,
    instant_ns,
    json_record_rows,
    keys_of,
    mean_per_token_ns,
)
from kvtrace.units import MIB, NS_PER_S

_HEAD_CHARS: Final = 16_384
_EPOCH_FROM_NS: Final = 10**9 * NS_PER_S
"""Larger times are dates (from 2001 on), smaller ones readings of a monotonic clock."""
_CANCELLED: Final = "cancel"


class _Text(msgspec.Struct, gc=False):
    input_tokens: int | None = None


class _RequestMetrics(msgspec.Struct, gc=False):
    text: _Text | None = None


class _ResponseMetrics(msgspec.Struct, gc=False):
    output_tokens: int | None = None
    server_usage: dict[str, object] | None = None
    chunk_times: list[msgspec.Raw] | None = None
    output_token_times: list[msgspec.Raw] | None = None


class _Info(msgspec.Struct, gc=False):
    request_metrics: _RequestMetrics | None = None
    response_metrics: _ResponseMetrics | None = None
    input_tokens: int | None = None
    lora_adapter: str | None = None


class _Error(msgspec.Struct, gc=False):
    error_type: str | None = None


class _Entry(msgspec.Struct, gc=False):
    start_time: Decimal | None = None
    end_time: Decimal | None = None
    request: msgspec.Raw = msgspec.Raw(b"null")
    info: _Info | None = None
    error: _Error | None = None


class _Payload(msgspec.Struct, gc=False):
    model: str | None = None


_ENTRY: Final = msgspec.json.Decoder(_Entry)
_REQUEST: Final = msgspec.json.Decoder(str)
_PAYLOAD: Final = msgspec.json.Decoder(_Payload)
_TIME: Final = msgspec.json.Decoder(Decimal | None, strict=False)


class _MetricsFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.counts = CountBook()
        self._is_epoch: bool | None = None

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one entry.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or range.
        """
        entry = decode_json(_ENTRY, record.data)
        if entry.start_time is None:
            raise msgspec.ValidationError("no `start_time`")
        info = entry.info or _Info()
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            llm=_model(entry.request),
            adapter=info.lora_adapter or None,
            arrived_at_ns=instant_ns("start_time", entry.start_time, self._context),
            is_benchmark=True,
        )
        if entry.error is not None:
            is_cancelled = _CANCELLED in (entry.error.error_type or "").lower()
            row.status = "cancelled" if is_cancelled else "error"
        if self._is_epoch is None:
            self._is_epoch = (row.arrived_at_ns or 0) >= _EPOCH_FROM_NS
        end_ns = instant_ns("end_time", entry.end_time, self._context)
        row.e2e_ns = between_ns(row.arrived_at_ns, end_ns, flags)
        self._fill_tokens(row, info)
        self._fill_first(row, info.response_metrics, flags)
        row.flags = (*row.flags, *flags)
        flag_lengths(row)
        self.counts.saw(row)
        return [row]

    def _fill_tokens(self, row: RequestRow, info: _Info) -> None:
        told = info.response_metrics or _ResponseMetrics()
        text = info.request_metrics.text if info.request_metrics is not None else None
        client = info.input_tokens if text is None else text.input_tokens
        fill_counts(
            row,
            told.server_usage,
            client_prompt=count_of("input_tokens", client),
            client_output=count_of("output_tokens", told.output_tokens),
        )

    def _fill_first(self, row: RequestRow, told: _ResponseMetrics | None, flags: list[str]) -> None:
        """The first token of a stream; without token times, its first chunk."""
        if told is None:
            return
        times = told.output_token_times or told.chunk_times
        first_ns = self._time("output_token_times", times[:1] if times else ())
        last_ns = self._time("output_token_times", times[-1:] if times else ())
        row.ttft_ns = between_ns(row.arrived_at_ns, first_ns, flags)
        row.ttft_from = None if row.ttft_ns is None else "client"
        if row.ttft_ns is not None:
            row.tpot_ns = mean_per_token_ns(between_ns(first_ns, last_ns, flags), row.output_tokens)

    def _time(self, name: str, one: Sequence[msgspec.Raw]) -> int | None:
        return instant_ns(name, _TIME.decode(one[0]), self._context) if one else None

    def describe(self) -> None:
        """Write down the clock and whose counts they are."""
        context = self._context
        if self._is_epoch is not None:
            context.clock = "utc" if self._is_epoch else "monotonic"
            context.clock_reason = (
                "start_time is epoch time of the client"
                if self._is_epoch
                else "start_time is a reading of the client's monotonic clock"
            )
        self.counts.describe(context)


def _model(request: msgspec.Raw) -> str | None:
    """The model that a request names; nothing else of it is looked at."""
    try:
        return _PAYLOAD.decode(_REQUEST.decode(request)).model
    except (msgspec.DecodeError, RecursionError):
        return None


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _MetricsFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    ours = sum(map(_is_ours, head.json_objects))
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.95, f"{ours} requests of inference-perf (info.request_metrics)")
    start = head.text[:_HEAD_CHARS]
    names = ('"start_time"', '"end_time"', '"request_metrics"')
    if all(name in start for name in names):
        return Guess(0.9, "long requests of inference-perf (info.request_metrics)")
    return None


def _is_ours(item: dict[str, object]) -> bool:
    return "request_metrics" in keys_of(item.get("info")) and "start_time" in item


FORMATS: tuple[Format, ...] = (
    Format(
        name="inference_perf",
        title="inference-perf per-request metrics (JSON)",
        framing="json",
        best_grade="B",
        supplies=(
            "llm",
            "adapter",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            "production": "the engine's own log of real requests",
            "cached_tokens": "vLLM --enable-prompt-tokens-details or SGLang --enable-cache-report"
            " on the server",
            "sessions": "the session report of inference-perf has no requests; the engine's log",
            "reuse": "the engine's block events",
            "queue": "the engine's log of the same time",
        },
        versions="inference-perf 0.2 to 0.7 (per_request_lifecycle_metrics.json)",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="report: {request_lifecycle: {per_request: true}} in the configuration of"
        " inference-perf",
        max_record_bytes=64 * MIB,
    ),
)
