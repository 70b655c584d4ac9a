"""guidellm's `benchmarks.json`: a report of one or more benchmarks with their requests.

Shapes read from the sources of guidellm 0.2 (requests with `start_time`, `first_token_time`,
`end_time`) and 0.4 to 0.8 (`info.timings`, whose `first_iteration` became `first_token_iteration`;
`metadata.version` 1 and 2; cached tokens since 0.8).
Requests stand in lists by outcome: successful, incomplete (the run ended) and errored. Times are
epoch seconds of the client. Prompts and outputs stand in the file and are stepped over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.bench_runs import MAX_RUN_BYTES
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
from kvtrace.schema.manifest import Status

_HEAD_CHARS: Final = 16_384


class _Timings(msgspec.Struct, gc=False):
    resolve_start: Decimal | None = None
    request_start: Decimal | None = None
    first_token: Decimal | None = msgspec.field(default=None, name="first_token_iteration")
    last_token: Decimal | None = msgspec.field(default=None, name="last_token_iteration")
    first_iteration: Decimal | None = None
    last_iteration: Decimal | None = None
    request_end: Decimal | None = None
    resolve_end: Decimal | None = None


class _Info(msgspec.Struct, gc=False):
    conversation_id: str | None = None
    turn_index: int | None = None
    timings: _Timings | None = None


class _Request(msgspec.Struct, gc=False):
    request_id: str | None = None
    response_id: str | None = None
    info: _Info | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    start_time: Decimal | None = None
    first_token_time: Decimal | None = None
    last_token_time: Decimal | None = None
    end_time: Decimal | None = None

    def timings(self) -> _Timings:
        """The instants, whichever version wrote them."""
        if self.info is not None and self.info.timings is not None:
            return self.info.timings
        return _Timings(
            request_start=self.start_time,
            first_token=self.first_token_time,
            last_token=self.last_token_time,
            request_end=self.end_time,
        )


class _Requests(msgspec.Struct, gc=False):
    successful: list[msgspec.Raw] | None = None
    incomplete: list[msgspec.Raw] | None = None
    errored: list[msgspec.Raw] | None = None


class _Worker(msgspec.Struct, gc=False):
    backend_model: str | None = None


class _Benchmark(msgspec.Struct, gc=False):
    requests: _Requests | None = None
    request_samples: msgspec.Raw = msgspec.Raw(b"null")
    worker: _Worker | None = None


class _Report(msgspec.Struct, gc=False):
    benchmarks: list[_Benchmark]


_REPORT: Final = msgspec.json.Decoder(_Report)
_REQUEST: Final = msgspec.json.Decoder(_Request, strict=False)


class _ReportFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._benchmarks = 0
        self._has_cached = self._is_sampled = False

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The requests of one report.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or range.
        """
        report = decode_json(_REPORT, record.data)
        rows: list[Row] = []
        for benchmark in report.benchmarks:
            rows += self._benchmark_rows(record, benchmark)
        return rows or Ignored("no_requests")

    def _benchmark_rows(self, record: Record, benchmark: _Benchmark) -> list[RequestRow]:
        requests = benchmark.requests or _Requests()
        llm = benchmark.worker.backend_model if benchmark.worker is not None else None
        outcomes: tuple[tuple[Status, list[msgspec.Raw] | None], ...] = (
            ("ok", requests.successful),
            ("cancelled", requests.incomplete),
            ("error", requests.errored),
        )
        rows = [
            self._row(record, _REQUEST.decode(raw), status, llm)
            for status, listed in outcomes
            for raw in listed or ()
        ]
        self._benchmarks += bool(rows)
        self._is_sampled = self._is_sampled or bytes(benchmark.request_samples) != b"null"
        return rows

    def _row(
        self, record: Record, request: _Request, status: Status, llm: str | None
    ) -> RequestRow:
        times = request.timings()
        info = request.info or _Info()
        start = times.resolve_start if times.request_start is None else times.request_start
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=request.response_id or request.request_id or None,
            session_id=info.conversation_id or None,
            turn=_turn(info.turn_index),
            llm=llm,
            arrived_at_ns=instant_ns("request_start", start, self._context),
            prompt_tokens=count_of("prompt_tokens", request.prompt_tokens),
            cached_tokens=count_of("cached_tokens", request.cached_tokens),
            output_tokens=count_of("output_tokens", request.output_tokens),
            status=status,
            is_benchmark=True,
        )
        self._fill_times(row, times, flags)
        row.flags = tuple(flags)
        flag_lengths(row)
        self._has_cached = self._has_cached or row.cached_tokens is not None
        return row

    def _fill_times(self, row: RequestRow, times: _Timings, flags: list[str]) -> None:
        """Differences of the instants: exact, where the file's own figures are rounded.

        Formula: tpot = (last token - first token) / (output - 1).
        """
        first = times.first_iteration if times.first_token is None else times.first_token
        last = times.last_iteration if times.last_token is None else times.last_token
        first_ns = instant_ns("first_token", first, self._context)
        last_ns = instant_ns("last_token", last, self._context)
        end = times.resolve_end if times.request_end is None else times.request_end
        end_ns = instant_ns("request_end", end, self._context)
        row.ttft_ns = between_ns(row.arrived_at_ns, first_ns, flags)
        row.ttft_from = None if row.ttft_ns is None else "client"
        row.e2e_ns = between_ns(row.arrived_at_ns, end_ns, flags)
        if row.ttft_ns is not None:
            row.tpot_ns = mean_per_token_ns(between_ns(first_ns, last_ns, flags), row.output_tokens)

    def describe(self) -> None:
        """Write down the clock, and what a reader of the rows must know."""
        context = self._context
        if context.clock_resolution_ns is not None:
            context.clock = "utc"
            context.clock_reason = "request_start is epoch time of the client"
        if not self._has_cached:
            context.evidence_grade = "L"
        if self._benchmarks > 1:
            context.note(
                "several_runs",
                f"The report holds {self._benchmarks} benchmarks of different load, one after the"
                " other; their requests are in one table.",
            )
        if self._is_sampled:
            context.note(
                "requests_sampled",
                "The report keeps a random sample of the requests (--output-sampling): rates and"
                " reuse across requests are too low.",
                severity="warning",
            )


def _turn(index: int | None) -> int | None:
    return index if index is not None and 0 <= index < 2**31 else None


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ReportFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    ours = sum(map(_is_ours, head.json_objects))
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.95, "a report of guidellm (benchmarks with requests by outcome)")
    start = head.text[:_HEAD_CHARS].lstrip("\ufeff \t\r\n")
    if not start.startswith("{"):
        return None
    is_new = '"guidellm_version"' in start and '"benchmarks"' in start
    is_old = '"benchmarks"' in start[:256] and '"generative_benchmark"' in start
    if is_new or is_old:
        return Guess(0.95, "a long report of guidellm (benchmarks)")
    return None


def _is_ours(item: dict[str, object]) -> bool:
    if "guidellm_version" in keys_of(item.get("metadata")) and "benchmarks" in item:
        return True
    listed = item.get("benchmarks")
    first = listed[0] if isinstance(listed, list) and listed else None
    requests = first.get("requests") if isinstance(first, dict) else None
    return {"successful", "errored"} <= keys_of(requests)


FORMATS: tuple[Format, ...] = (
    Format(
        name="guidellm",
        title="guidellm report (benchmarks.json)",
        framing="json",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "turn",
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
            "cached_tokens": "guidellm 0.8 or newer, and on the server vLLM"
            " --enable-prompt-tokens-details or SGLang --enable-cache-report",
            "reuse": "the engine's block events",
            "queue": "the engine's log of the same requests, joined by response id",
        },
        versions="guidellm 0.2 to 0.8 (reports without version, version 1 and 2)",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="guidellm benchmark … --output-path benchmarks.json (up to 0.3 without"
        " --output-sampling)",
        max_record_bytes=MAX_RUN_BYTES,
    ),
)
