"""AIPerf's per-request records: `profile_export.jsonl`, one request a line.

Lines read from the sources of AIPerf 0.1 to 0.13 (`MetricRecordInfo`). Instants are epoch
nanoseconds of the client's wall clock; each metric carries its unit. `usage_*` are the server's
counts, `input_sequence_length` and `output_sequence_length` the client's. Requests of the warm-up
are left out. `session_num` says nothing (it repeats); `conversation_id` names the conversation of
the data set, so one that is replayed several times is one session here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.bench_counts import CountBook, fill_counts
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    between_ns,
    count_of,
    decode_json,
    elapsed_ns,
    flag_lengths,
    json_record_rows,
    keys_of,
    mean_per_token_ns,
)

_POWERS: Final = {"ns": -9, "us": -6, "µs": -6, "ms": -3, "s": 0, "sec": 0, "seconds": 0}
_UNIT_FLAG: Final = "unknown_unit"
_CANCELLED: Final = "cancel"
_USAGE: Final = {
    # metric: key of an OpenAI usage object
    "usage_prompt_tokens": "prompt_tokens",
    "usage_completion_tokens": "completion_tokens",
    "usage_total_tokens": "total_tokens",
}
_DETAILS: Final = {
    "usage_prompt_cache_read_tokens": "cached_tokens",
    "usage_prompt_cache_write_tokens": "cache_write_tokens",
}


class _Metric(msgspec.Struct, gc=False):
    value: Decimal | list[msgspec.Raw] | None = None
    unit: str | None = None


class _Metadata(msgspec.Struct, gc=False):
    x_request_id: str | None = None
    conversation_id: str | None = None
    turn_index: int | None = None
    request_start_ns: int | None = None
    request_end_ns: int | None = None
    benchmark_phase: str | None = None
    was_cancelled: bool = False


class _Error(msgspec.Struct, gc=False):
    kind: str | None = msgspec.field(default=None, name="type")


class _Line(msgspec.Struct, gc=False):
    metadata: _Metadata
    metrics: dict[str, _Metric] = {}
    error: _Error | None = None


_DECODER: Final = msgspec.json.Decoder(_Line, strict=False)


class _ExportFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.counts = CountBook()
        self.has_start = False

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or range.
        """
        line = decode_json(_DECODER, record.data)
        told = line.metadata
        if told.request_start_ns is None and told.x_request_id is None:
            raise msgspec.ValidationError("neither `request_start_ns` nor `x_request_id`")
        if (told.benchmark_phase or "").lower() == "warmup":
            return Ignored("warmup")
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=told.x_request_id or None,
            session_id=told.conversation_id or None,
            turn=_turn(told.turn_index),
            arrived_at_ns=self._instant("request_start_ns", told.request_start_ns),
            is_benchmark=True,
        )
        if told.was_cancelled or _is_cancelled(line.error):
            row.status = "cancelled"
        elif line.error is not None:
            row.status = "error"
        self._fill_times(row, line, flags)
        row.flags = tuple(flags)
        self._fill_tokens(row, line.metrics)
        row.tpot_ns = mean_per_token_ns(_positive_gap(row.ttft_ns, row.e2e_ns), row.output_tokens)
        flag_lengths(row)
        self.counts.saw(row)
        return [row]

    def _instant(self, name: str, ns: int | None) -> int | None:
        if ns is None:
            return None
        if not 0 < ns <= INT64_MAX:
            raise msgspec.ValidationError(f"`{name}` is not a time")
        self.has_start = True
        return ns

    def _fill_times(self, row: RequestRow, line: _Line, flags: list[str]) -> None:
        """TTFT and duration as AIPerf measured them; without one, from the ends of the request."""
        row.ttft_ns = _time(line.metrics, "time_to_first_token", flags)
        row.ttft_from = None if row.ttft_ns is None else "client"
        row.e2e_ns = _time(line.metrics, "request_latency", flags)
        if row.e2e_ns is None:
            end_ns = self._instant("request_end_ns", line.metadata.request_end_ns)
            row.e2e_ns = between_ns(row.arrived_at_ns, end_ns, flags)

    def _fill_tokens(self, row: RequestRow, metrics: dict[str, _Metric]) -> None:
        usage: dict[str, object] = {}
        for tag, key in _USAGE.items():
            usage[key] = _count(metrics, tag)
        details = {key: _count(metrics, tag) for tag, key in _DETAILS.items()}
        if usage["prompt_tokens"] is None:
            usage["prompt_tokens"] = _sum_of(
                details["cached_tokens"], _count(metrics, "usage_prompt_cache_miss_tokens")
            )
        if any(value is not None for value in (*usage.values(), *details.values())):
            usage["prompt_tokens_details"] = details
        prompt = _count(metrics, "input_sequence_length")
        fill_counts(
            row,
            usage,
            client_prompt=_count(metrics, "error_isl") if prompt is None else prompt,
            client_output=_count(metrics, "output_sequence_length"),
        )

    def describe(self) -> None:
        """Write down the clock and whose counts they are."""
        context = self._context
        if self.has_start:
            context.clock, context.clock_resolution_ns = "utc", 1
            context.clock_reason = "request_start_ns is epoch time of the client"
        self.counts.describe(context)


def _turn(index: int | None) -> int | None:
    return index if index is not None and 0 <= index < 2**31 else None


def _is_cancelled(error: _Error | None) -> bool:
    return error is not None and _CANCELLED in (error.kind or "").lower()


def _positive_gap(start_ns: int | None, end_ns: int | None) -> int | None:
    if start_ns is None or end_ns is None or end_ns < start_ns:
        return None
    return end_ns - start_ns


def _sum_of(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _time(metrics: dict[str, _Metric], tag: str, flags: list[str]) -> int | None:
    """Nanoseconds of a metric in its own unit; in an unknown unit it is unknown."""
    metric = metrics.get(tag)
    if metric is None or not isinstance(metric.value, Decimal):
        return None
    power = _POWERS.get((metric.unit or "").lower())
    if power is None:
        flags.append(_UNIT_FLAG)
        return None
    return elapsed_ns(tag, metric.value, flags, power=power)


def _count(metrics: dict[str, _Metric], tag: str) -> int | None:
    metric = metrics.get(tag)
    if metric is None or not isinstance(metric.value, Decimal):
        return None
    value = metric.value
    if not value.is_finite() or value.adjusted() > 18 or value != int(value):
        raise msgspec.ValidationError(f"`{tag}` is not a count")
    return count_of(tag, int(value))


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ExportFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    ours = sum(map(_is_ours, head.json_objects))
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.97, f"{ours} requests of AIPerf (metadata with x_request_id, metrics)")
    return None


def _is_ours(item: dict[str, object]) -> bool:
    told = keys_of(item.get("metadata"))
    return "metrics" in item and "request_start_ns" in told and "x_request_id" in told


FORMATS: tuple[Format, ...] = (
    Format(
        name="aiperf",
        title="AIPerf per-request records (profile_export.jsonl)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "turn",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            "production": "the engine's own log of real requests",
            "cached_tokens": "AIPerf 0.8 or newer with the server's usage: vLLM"
            " --enable-prompt-tokens-details, SGLang --enable-cache-report",
            "reuse": "the trace that was replayed (Mooncake rows with hash_ids), or the engine's"
            " block events",
            "queue": "the engine's log of the same requests, joined by x_request_id (vLLM:"
            " --enable-request-id-headers)",
        },
        versions="AIPerf 0.1 to 0.13 (MetricRecordInfo)",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="aiperf profile … --export-level records (profile_export.jsonl in the artifact"
        " directory)",
    ),
)
