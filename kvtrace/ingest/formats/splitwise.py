"""Traces of splitwise-sim: one CSV row a request, lengths and arrival in seconds.

Shape read from Mutinifni/splitwise-sim (`traces/*.csv`, `generate_trace.py`): `request_id,
request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size`. Arrivals count
from the start of the trace. No cache fields: reuse is unknown.
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

_REQUIRED = ("arrival_timestamp", "prompt_size", "token_size")


def _sniff(head: Head) -> Guess | None:
    return sniff_columns(head, _REQUIRED)


class _SplitwiseFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context

    def row(self, record: Record, cell: dict[str, str]) -> RequestRow:
        """The request of one record."""
        prompt_tokens = parse_count(cell["prompt_size"], "prompt_size")
        return RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=cell.get("request_id") or None,
            tenant=cell.get("application_id") or None,
            arrived_at_ns=self._arrival(cell["arrival_timestamp"]),
            prompt_tokens=prompt_tokens,
            output_tokens=parse_count(cell["token_size"], "token_size"),
            flags=() if prompt_tokens else ("zero_prompt",),
        )

    def _arrival(self, text: str) -> int:
        seconds = parse_decimal(text, "arrival_timestamp")
        ns = seconds_to_ns(seconds)
        if ns is None or ns < 0:
            raise BadCellError("invalid_time", "`arrival_timestamp` is no time since the start")
        resolution = seconds_resolution_ns(seconds)
        known = self._context.clock_resolution_ns
        self._context.clock_resolution_ns = min(known or resolution, resolution)
        return ns


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    context.clock = "relative"
    context.clock_reason = "arrival_timestamp counts seconds from the start of the trace"
    yield from CsvTable(_REQUIRED, context).rows(records, _SplitwiseFile(context).row)


FORMATS: tuple[Format, ...] = (
    Format(
        name="splitwise",
        title="splitwise-sim trace (CSV)",
        framing="csv",
        best_grade="L",
        supplies=("request_id", "tenant", "arrived_at_ns", "prompt_tokens", "output_tokens"),
        missing={
            "reuse": "the trace has no block hashes; a trace with them, such as the Mooncake shape",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
            "sessions": "a trace with session ids",
        },
        versions="Mutinifni/splitwise-sim, traces and generate_trace.py",
        sniff=_sniff,
        read=_read,
        enable_hint="a simulator's input; for your own service, log arrival, prompt tokens and"
        " output tokens at the gateway",
    ),
)
