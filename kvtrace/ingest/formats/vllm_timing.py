"""Per-request timing files and 1 s time series that a vLLM benchmark harness writes.

Read from casys-kaist/LLMServingSim bench/examples (vLLM 0.19.0). `requests.jsonl` has
`arrival_time` in epoch seconds and `queued_ts, scheduled_ts, first_token_ts, last_token_ts` in
seconds of a monotonic clock: only differences inside the second domain mean anything, so latency
starts at the enqueue and not at the arrival. `timeseries.csv` has engine-wide rates and gauges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import seconds_resolution_ns, seconds_to_ns
from kvtrace.ingest.contract import (
    Format,
    Guess,
    Head,
    Metric,
    ReadContext,
    Record,
    RequestRow,
    SampleRow,
)
from kvtrace.ingest.families.json_rows import json_rows
from kvtrace.ingest.values.cells import BadCellError, CsvTable, parse_decimal, sniff_columns
from kvtrace.ingest.values.limits import MAX_COUNT
from kvtrace.units import NS_PER_S

_COUNTS: Final = ("input_toks", "output_toks")
_TIMES: Final = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
"""A record with one of the counts and an id or one of these is a timing row."""
_RELATIVE_BELOW_S: Final = 10**8
"""Seconds below this are no epoch (1973) but counted from some start."""
_BENCHMARK_PREFIX: Final = "bench-"
"""Ids of the harness's own requests."""


class _TimingRow(msgspec.Struct, gc=False):
    request_id: str | int | None = None
    input_toks: int | None = None
    output_toks: int | None = None
    arrival_time: Decimal | None = None
    queued_ts: Decimal | None = None
    scheduled_ts: Decimal | None = None
    first_token_ts: Decimal | None = None
    last_token_ts: Decimal | None = None


_DECODER: Final = msgspec.json.Decoder(_TimingRow, strict=False)


def _monotonic_ns(seconds: Decimal | None) -> int | None:
    """Nanoseconds of a monotonic stamp; 0.0 is vLLM's unset value, so unknown."""
    return seconds_to_ns(seconds) if seconds else None


def _between(start_ns: int | None, end_ns: int | None, flags: list[str]) -> int | None:
    if start_ns is None or end_ns is None:
        return None
    if end_ns < start_ns:
        if "time_order" not in flags:
            flags.append("time_order")
        return None
    return end_ns - start_ns


class _TimingFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._is_relative: bool | None = None

    def row(self, record: Record) -> RequestRow:
        """The request of one record.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        raw = _DECODER.decode(record.data)
        for name, value in zip(_COUNTS, (raw.input_toks, raw.output_toks), strict=True):
            if value is not None and not 0 <= value <= MAX_COUNT:
                raise msgspec.ValidationError(f"`{name}` is negative or larger than any count")
        if raw.input_toks is None and all(getattr(raw, name) is None for name in _TIMES):
            raise msgspec.ValidationError("neither `input_toks` nor a time of the engine")
        request_id = None if raw.request_id is None else str(raw.request_id)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=request_id,
            arrived_at_ns=self._arrival(raw.arrival_time),
            prompt_tokens=raw.input_toks,
            output_tokens=raw.output_toks,
            is_benchmark=(request_id or "").startswith(_BENCHMARK_PREFIX),
        )
        self._fill_latency(row, raw)
        return row

    def _fill_latency(self, row: RequestRow, raw: _TimingRow) -> None:
        """Differences on the monotonic clock.

        Formula: queue = scheduled − queued; prefill = first token − scheduled; ttft = first token −
        queued; tpot = (last token − first token) / (output − 1); e2e = last token − queued.
        """
        queued, scheduled = _monotonic_ns(raw.queued_ts), _monotonic_ns(raw.scheduled_ts)
        first, last = _monotonic_ns(raw.first_token_ts), _monotonic_ns(raw.last_token_ts)
        flags = ["zero_prompt"] if raw.input_toks == 0 else []
        row.queue_ns = _between(queued, scheduled, flags)
        row.prefill_ns = _between(scheduled, first, flags)
        row.e2e_ns = _between(queued, last, flags)
        if queued is not None:
            row.ttft_ns = _between(queued, first, flags)
            row.ttft_from = None if row.ttft_ns is None else "arrival"
        else:
            row.ttft_ns = row.prefill_ns
            row.ttft_from = None if row.ttft_ns is None else "scheduled"
        decode = _between(first, last, flags)
        if decode is not None and raw.output_toks is not None and raw.output_toks > 1:
            row.tpot_ns = round(Decimal(decode) / (raw.output_toks - 1))
        if last is None:
            row.status = "open"
        if row.ttft_from == "arrival":
            self._context.note(
                "ttft_from_enqueue",
                "TTFT and end-to-end time start at the enqueue in the engine (`queued_ts`):"
                " `arrival_time` is on another clock, so the way from client to queue is missing.",
            )
        row.flags = tuple(flags)

    def _arrival(self, seconds: Decimal | None) -> int | None:
        if seconds is None:
            return None
        time_ns = seconds_to_ns(seconds)
        if time_ns is None:
            raise msgspec.ValidationError("`arrival_time` is not a time in seconds")
        context = self._context
        is_relative = abs(seconds) < _RELATIVE_BELOW_S
        if self._is_relative is None:
            self._is_relative = is_relative
            context.clock = "relative" if is_relative else "utc"
            context.clock_reason = (
                "arrival_time counts seconds from some start"
                if is_relative
                else "arrival_time is in epoch seconds"
            )
        elif self._is_relative != is_relative:
            raise msgspec.ValidationError("`arrival_time` is on another clock than the rows before")
        resolution = seconds_resolution_ns(seconds)
        context.clock_resolution_ns = min(context.clock_resolution_ns or resolution, resolution)
        return time_ns


def _read_requests(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    file = _TimingFile(context)
    context.engine = "vllm"
    yield from json_rows(records, context.tally, file.row)


def _sniff_requests(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_timing(item) for item in objects)
    if ours == 0 or 2 * ours < len(objects):
        return None
    confidence = 0.6 + 0.38 * ours / len(objects)
    return Guess(confidence, f"{ours} of {len(objects)} records have vLLM's counts and times")


def _is_timing(item: dict[str, object]) -> bool:
    """Token counts in vLLM's spelling, with an id or a time of the engine."""
    if all(name in item for name in ("request_id", *_COUNTS)):
        return True
    return any(name in item for name in _COUNTS) and any(name in item for name in _TIMES)


_SERIES: Final[dict[str, tuple[str, str, str, int]]] = {
    # column: (metric, unit, window, power of ten from the cell to the unit)
    "prompt_throughput": ("prompt_tokens_per_s", "tokens_per_s", "interval", 0),
    "gen_throughput": ("generation_tokens_per_s", "tokens_per_s", "interval", 0),
    "running": ("running_requests", "requests", "instant", 0),
    "waiting": ("waiting_requests", "requests", "instant", 0),
    "kv_cache_pct": ("kv_usage_ratio", "ratio", "instant", -2),
}
_SERIES_COLUMNS: Final = ("t", *_SERIES)


def _sniff_series(head: Head) -> Guess | None:
    return sniff_columns(head, _SERIES_COLUMNS)


def _sample(record: Record, cells: dict[str, str]) -> SampleRow:
    time_ns = seconds_to_ns(parse_decimal(cells["t"], "t"))
    if time_ns is None:
        raise BadCellError("invalid_time", "`t` is not a time in seconds")
    metrics: list[Metric] = []
    for column, (metric, unit, window, shift) in _SERIES.items():
        text = cells[column]
        if not text:
            continue
        value = float(parse_decimal(text, column).scaleb(shift))
        if value < 0:
            raise BadCellError("negative_number", f"`{column}` is negative")
        metrics.append(Metric(metric=metric, value=value, unit=unit, window=window))
    return SampleRow(
        offset=record.offset,
        line=record.line,
        observed_at_ns=time_ns,
        engine=None,
        metrics=metrics,
    )


def _read_series(records: Iterable[Record], context: ReadContext) -> Iterator[SampleRow]:
    context.engine, context.clock = "vllm", "relative"
    context.clock_resolution_ns = NS_PER_S
    context.clock_reason = "t counts seconds from the start of the run"
    yield from CsvTable(_SERIES_COLUMNS, context).rows(records, _sample)


_VERSIONS: Final = "casys-kaist/LLMServingSim bench/examples with vLLM 0.19.0"
_REUSE_MISSING: Final = {
    "reuse": "block hashes; vLLM: --kv-events-config with a subscriber"
    " that writes a file, or token ids from --enable-log-requests at level DEBUG",
    "cached_tokens": "usage with cached_tokens (vLLM: --enable-prompt-tokens-details)",
}

FORMATS: tuple[Format, ...] = (
    Format(
        name="vllm_timing",
        title="vLLM per-request timing file (JSON lines)",
        framing="lines",
        best_grade="L",
        supplies=(
            "request_id",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "queue_ns",
            "prefill_ns",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            **_REUSE_MISSING,
        },
        versions=_VERSIONS,
        sniff=_sniff_requests,
        read=_read_requests,
        enable_hint="write the request metrics of vLLM's RequestOutput (arrival_time, queued_ts,"
        " scheduled_ts, first_token_ts, last_token_ts) to JSON lines",
    ),
    Format(
        name="vllm_timeseries",
        title="vLLM 1 s time series (CSV)",
        framing="csv",
        best_grade="C",
        supplies=tuple(metric for metric, _, _, _ in _SERIES.values()),
        missing={
            **_REUSE_MISSING,
            "requests": "the per-request timing file of the same run",
        },
        versions=_VERSIONS,
        sniff=_sniff_series,
        read=_read_series,
        enable_hint="sample vLLM's statistics once a second into a CSV file with these columns",
    ),
)
