"""Traces of Vidur and Frontier: one CSV row a request, lengths and, if any, arrival in seconds.

Shape read from microsoft/vidur (`data/processed_traces`): `arrived_at,num_prefill_tokens,
num_decode_tokens`, and the variant without times, `num_prefill_tokens,num_decode_tokens,
num_total_tokens,pd_ratio`. Arrivals count from the start of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvtrace.ingest.clocks import seconds_resolution_ns, seconds_to_ns
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow
from kvtrace.ingest.values.cells import (
    BadCellError,
    CsvTable,
    parse_count,
    parse_decimal,
    sniff_columns,
)

_REQUIRED = ("num_prefill_tokens", "num_decode_tokens")


def _sniff(head: Head) -> Guess | None:
    return sniff_columns(head, _REQUIRED)


class _VidurFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._timed = self._untimed = 0

    def row(self, record: Record, cell: dict[str, str]) -> RequestRow:
        """The request of one record."""
        prompt_tokens = parse_count(cell["num_prefill_tokens"], "num_prefill_tokens")
        output_tokens = parse_count(cell["num_decode_tokens"], "num_decode_tokens")
        arrived_at = cell.get("arrived_at", "")
        arrived_at_ns = self._arrival(arrived_at) if arrived_at else None
        total = cell.get("num_total_tokens", "")
        flags = [] if prompt_tokens else ["zero_prompt"]
        if total and parse_count(total, "num_total_tokens") != prompt_tokens + output_tokens:
            flags.append("total_mismatch")
        self._timed += arrived_at_ns is not None
        self._untimed += arrived_at_ns is None
        return RequestRow(
            offset=record.offset,
            line=record.line,
            arrived_at_ns=arrived_at_ns,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            flags=tuple(flags),
        )

    def _arrival(self, text: str) -> int:
        seconds = parse_decimal(text, "arrived_at")
        ns = seconds_to_ns(seconds)
        if ns is None or ns < 0:
            raise BadCellError("invalid_time", "`arrived_at` is no time since the start")
        resolution = seconds_resolution_ns(seconds)
        known = self._context.clock_resolution_ns
        self._context.clock_resolution_ns = min(known or resolution, resolution)
        return ns

    def describe_clock(self) -> None:
        """Write down whether the rows have times."""
        context = self._context
        if not self._timed:
            context.clock_reason = "no row has a time: a distribution of lengths"
            return
        context.clock = "relative"
        context.clock_reason = "arrived_at counts seconds from the start of the trace"
        if self._untimed:
            context.note("arrival_unknown", f"{self._untimed:,} rows have no arrived_at")


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    file = _VidurFile(context)
    yield from CsvTable(_REQUIRED, context).rows(records, file.row)
    file.describe_clock()


FORMATS: tuple[Format, ...] = (
    Format(
        name="vidur",
        title="Vidur / Frontier trace (CSV)",
        framing="csv",
        best_grade="L",
        supplies=("arrived_at_ns", "prompt_tokens", "output_tokens"),
        missing={
            "reuse": "the trace has no block hashes; a trace with them, such as the Mooncake shape",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
            "sessions": "a trace with session ids",
            "arrivals": "the variant with num_total_tokens and pd_ratio has lengths only",
        },
        versions="microsoft/vidur processed traces with arrived_at, and length files with pd_ratio",
        sniff=_sniff,
        read=_read,
        enable_hint="a simulator's input; for your own service, log arrival, prompt tokens and"
        " output tokens at the gateway",
    ),
)
