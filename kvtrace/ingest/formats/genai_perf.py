"""genai-perf's `profile_export.json` (Perf Analyzer): experiments with a list of requests each.

Shape read from the sources of genai-perf 0.0.16 and Perf Analyzer 2.54: for each request the time
of sending, the time of every response, and the responses themselves. Times are nanoseconds. Token
counts are there only where a response carries a usage object; texts are stepped over. The last
response may be the empty `[DONE]`: genai-perf then ends the request one response earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.bench_counts import CountBook, fill_counts
from kvtrace.ingest.families.bench_runs import MAX_RUN_BYTES
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    between_ns,
    decode_json,
    flag_lengths,
    json_record_rows,
    keys_of,
    mean_per_token_ns,
)

_EPOCH_FROM_NS: Final = 10**17
"""Smaller times (before 1973) are no dates but readings of a monotonic clock."""
_HEAD_CHARS: Final = 4096
_EVENT: Final = "data:"


class _Inputs(msgspec.Struct, gc=False):
    payload: str | None = None
    session_id: str | None = None


class _Output(msgspec.Struct, gc=False):
    response: str = ""


class _Request(msgspec.Struct, gc=False):
    timestamp: int
    inputs: _Inputs | None = msgspec.field(default=None, name="request_inputs")
    times: list[int] = msgspec.field(default_factory=list, name="response_timestamps")
    outputs: list[msgspec.Raw] = msgspec.field(default_factory=list, name="response_outputs")


class _Experiment(msgspec.Struct, gc=False):
    requests: list[msgspec.Raw] = []


class _Document(msgspec.Struct, gc=False):
    experiments: list[_Experiment]


class _Payload(msgspec.Struct, gc=False):
    model: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    usage: dict[str, object] | None = None


_DOCUMENT: Final = msgspec.json.Decoder(_Document)
_REQUEST: Final = msgspec.json.Decoder(_Request)
_OUTPUT: Final = msgspec.json.Decoder(_Output)
_PAYLOAD: Final = msgspec.json.Decoder(_Payload)
_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class _ProfileFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.counts = CountBook()
        self._is_epoch: bool | None = None
        self._streams = 0

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The requests of one document.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or range.
        """
        document = decode_json(_DOCUMENT, record.data)
        rows: list[Row] = []
        for experiment in document.experiments:
            for raw in experiment.requests:
                row = self._row(record, _REQUEST.decode(raw))
                self.counts.saw(row)
                rows.append(row)
        return rows or Ignored("no_requests")

    def _row(self, record: Record, request: _Request) -> RequestRow:
        if not 0 <= request.timestamp <= INT64_MAX:
            raise msgspec.ValidationError("`timestamp` is not a time")
        if self._is_epoch is None:
            self._is_epoch = request.timestamp >= _EPOCH_FROM_NS
        inputs = request.inputs or _Inputs()
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            session_id=inputs.session_id or None,
            llm=_model(inputs.payload),
            arrived_at_ns=request.timestamp,
            status="error" if _is_failed(request) else "ok",
            is_benchmark=True,
        )
        flags: list[str] = []
        if request.times:
            self._fill_times(row, request, flags)
        row.flags = tuple(flags)
        fill_counts(row, _usage(request.outputs), client_prompt=None, client_output=None)
        row.tpot_ns = mean_per_token_ns(
            between_ns(row.ttft_ns, row.e2e_ns, flags), row.output_tokens
        )
        flag_lengths(row)
        return row

    def _fill_times(self, row: RequestRow, request: _Request, flags: list[str]) -> None:
        row.e2e_ns = between_ns(request.timestamp, request.times[-1], flags)
        first = _OUTPUT.decode(request.outputs[0]).response if request.outputs else _EVENT
        if len(request.times) > 1 or first.lstrip().startswith(_EVENT):
            self._streams += 1
            row.ttft_ns = between_ns(request.timestamp, request.times[0], flags)
            row.ttft_from = None if row.ttft_ns is None else "client"

    def describe(self) -> None:
        """Write down the clock, and how the end of a stream was read."""
        context = self._context
        if self._is_epoch is not None:
            context.clock = "utc" if self._is_epoch else "monotonic"
            context.clock_resolution_ns = 1
            context.clock_reason = (
                "timestamp is epoch time of the client"
                if self._is_epoch
                else "timestamp is too small for a date: a clock of the client since some start"
            )
        if self._streams:
            context.note(
                "done_counts_as_end",
                "Streams end with their last response, which may be the empty `[DONE]`; genai-perf"
                " drops empty last responses and so reports shorter durations.",
            )
        self.counts.describe(context)


def _is_failed(request: _Request) -> bool:
    """Whether nothing came back: no response, or empty ones alone."""
    if not request.times:
        return True
    return bool(request.outputs) and all(map(_is_empty, request.outputs))


def _is_empty(output: msgspec.Raw) -> bool:
    return b'"response"' in bytes(output) and not _OUTPUT.decode(output).response.strip()


def _model(payload: str | None) -> str | None:
    """The model that a request names; nothing else of it is looked at."""
    try:
        return _PAYLOAD.decode(payload).model if payload else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _usage(outputs: Sequence[msgspec.Raw]) -> dict[str, object] | None:
    """The last usage object of the responses."""
    for raw in reversed(outputs):
        if b"usage" not in bytes(raw):
            continue
        for text in reversed(_OUTPUT.decode(raw).response.splitlines()):
            if '"usage"' in text:
                try:
                    usage = _CHUNK.decode(text.strip().removeprefix(_EVENT)).usage
                except (msgspec.DecodeError, RecursionError):
                    continue
                if usage:
                    return usage
    return None


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ProfileFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    ours = sum(map(_is_ours, head.json_objects))
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.95, "a profile export of genai-perf (experiments, response_timestamps)")
    start = head.text[:_HEAD_CHARS]
    names = ('"experiments"', '"requests"', '"timestamp"')
    if all(name in start for name in names) and '"response_timestamps"' in head.text:
        return Guess(0.9, "a long profile export of genai-perf (experiments, response_timestamps)")
    return None


def _is_ours(item: dict[str, object]) -> bool:
    listed = item.get("experiments")
    first = listed[0] if isinstance(listed, list) and listed else None
    return "requests" in keys_of(first)


FORMATS: tuple[Format, ...] = (
    Format(
        name="genai_perf",
        title="genai-perf profile export (JSON)",
        framing="json",
        best_grade="B",
        supplies=(
            "session_id",
            "llm",
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
            "prompt_tokens": "--extra-inputs stream_options:'{\"include_usage\":true}'",
            "cached_tokens": "the same, and on the server vLLM --enable-prompt-tokens-details or"
            " SGLang --enable-cache-report",
            "reuse": "the engine's block events",
            "queue": "the engine's log of the same time",
        },
        versions="genai-perf 0.0.16, Perf Analyzer 2.54 (superseded by AIPerf)",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="genai-perf profile … --streaming --profile-export-file profile_export.json",
        max_record_bytes=MAX_RUN_BYTES,
    ),
)
