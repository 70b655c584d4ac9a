"""BurstGPT traces: one CSV row a request of a campus ChatGPT and GPT-4 service.

Read from the public HPMLL/BurstGPT files. v1 has six columns, v1.2 and v3 add `Session ID` and
`Elapsed time`. `Timestamp` counts seconds from midnight of day 1 of the whole collection (v3 starts
at 19 440 110): never an epoch. `Elapsed time` is the full duration. A response of 0 tokens is a
failed request.
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
from kvtrace.units import NS_PER_S

_REQUIRED = ("Timestamp", "Request tokens", "Response tokens")
_KINDS = {"Conversation log": "conversation", "API log": "api"}
"""The values of `Log Type`: where the requests came from."""


def _sniff(head: Head) -> Guess | None:
    return sniff_columns(head, _REQUIRED)


class _BurstFile:
    """What the rows of one file have in common."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context

    def row(self, record: Record, cell: dict[str, str]) -> RequestRow:
        """The request of one record."""
        prompt_tokens = parse_count(cell["Request tokens"], "Request tokens")
        output_tokens = parse_count(cell["Response tokens"], "Response tokens")
        total = cell.get("Total tokens", "")
        flags = [] if prompt_tokens else ["zero_prompt"]
        if total and parse_count(total, "Total tokens") != prompt_tokens + output_tokens:
            flags.append("total_mismatch")
        kind = _KINDS.get(cell.get("Log Type", ""), cell.get("Log Type"))
        elapsed = cell.get("Elapsed time", "")
        e2e_ns = self._duration(elapsed, "Elapsed time") if elapsed else None
        return RequestRow(
            offset=record.offset,
            line=record.line,
            session_id=None if kind == "api" else cell.get("Session ID") or None,
            llm=cell.get("Model") or None,
            request_type=kind or None,
            arrived_at_ns=self._arrival(cell["Timestamp"]),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            e2e_ns=e2e_ns,
            status="ok" if output_tokens else "error",
            flags=tuple(flags),
        )

    def _arrival(self, text: str) -> int:
        """Nanoseconds on the collection's clock, which its files share."""
        return self._duration(text, "Timestamp")

    def _duration(self, text: str, column: str) -> int:
        seconds = parse_decimal(text, column)
        value = seconds_to_ns(seconds)
        if value is None:
            raise BadCellError("number_too_large", f"`{column}` does not fit 64 bits in ns")
        if value < 0:
            raise BadCellError("negative_number", f"`{column}` is negative")
        if column == "Timestamp" and value % NS_PER_S:
            self._context.clock_resolution_ns = min(
                self._context.clock_resolution_ns or NS_PER_S, seconds_resolution_ns(seconds)
            )
        return value


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    file = _BurstFile(context)
    context.clock = "relative"
    context.clock_resolution_ns = NS_PER_S
    context.clock_reason = (
        "Timestamp counts seconds from day 1 of the collection; shown from the first row"
    )
    yield from CsvTable(_REQUIRED, context).rows(records, file.row)


FORMATS: tuple[Format, ...] = (
    Format(
        name="burstgpt",
        title="BurstGPT trace (CSV)",
        framing="csv",
        best_grade="L",
        supplies=(
            "session_id",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "e2e_ns",
            "status",
        ),
        missing={
            "reuse": "the trace has no block hashes;"
            " a trace with them, such as the Mooncake or Bailian shape",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "Elapsed time is the full duration; a span with TTFT"
            " (vLLM: --otlp-traces-endpoint)",
        },
        versions="HPMLL/BurstGPT v1 (six columns), v1.2 and v3 (with Session ID, Elapsed time)",
        sniff=_sniff,
        read=_read,
        enable_hint="a public data set; for your own service, log arrival, tokens and TTFT at the"
        " gateway",
    ),
)
