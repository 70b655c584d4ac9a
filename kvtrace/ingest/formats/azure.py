"""Azure LLM inference traces, 2023 to 2025: one CSV row a request, lengths and arrival only.

Read from the public AzurePublicDataset: 2023 (`TIMESTAMP,ContextTokens,GeneratedTokens`, seven
fraction digits, no zone, CRLF, no line end at the end), 2024 one-week files (the same columns, zone
`+00:00`), 2025 multimodal (with `NumImages`, milliseconds and `Z`). No ids and no cache fields:
reuse can not be measured from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvtrace.ingest.clocks import parse_iso, zone_shift
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow
from kvtrace.ingest.values.cells import BadCellError, CsvTable, parse_count, sniff_columns

_REQUIRED = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _sniff(head: Head) -> Guess | None:
    return sniff_columns(head, _REQUIRED)


class _AzureFile:
    """The state of one file: what its time stamps looked like."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._shift = zone_shift(context.tz)
        self._zoned = 0
        self._naive = 0

    def row(self, record: Record, cell: dict[str, str]) -> RequestRow:
        """The request of one record."""
        prompt_tokens = parse_count(cell["ContextTokens"], "ContextTokens")
        output_tokens = parse_count(cell["GeneratedTokens"], "GeneratedTokens")
        images = cell.get("NumImages", "")
        return RequestRow(
            offset=record.offset,
            line=record.line,
            arrived_at_ns=self._arrival(cell["TIMESTAMP"]),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            request_type="image" if images and parse_count(images, "NumImages") else None,
            flags=() if prompt_tokens else ("zero_prompt",),
        )

    def _arrival(self, text: str) -> int:
        time = parse_iso(text)
        if time is None:
            raise BadCellError("invalid_time", "`TIMESTAMP` is not a date and time")
        known = self._context.clock_resolution_ns
        if known is None or time.resolution_ns < known:
            self._context.clock_resolution_ns = time.resolution_ns
        if time.is_zoned:
            self._zoned += 1
            return time.ns
        self._naive += 1
        return self._shift(time.ns)

    def describe_clock(self) -> None:
        """Write down which clock the rows turned out to be on."""
        context = self._context
        if self._naive == 0:
            context.clock = "utc" if self._zoned else "order"
            context.clock_reason = "TIMESTAMP carries a zone" if self._zoned else "no rows"
            return
        if context.tz is not None:
            context.clock = "utc"
            context.clock_reason = f"TIMESTAMP has no zone: taken as {context.tz} from --tz"
        else:
            context.clock = "naive"
            context.clock_reason = "TIMESTAMP has no zone: taken as UTC"
            context.note("naive_clock", "TIMESTAMP has no zone; it is taken as UTC (--tz).")
        if self._zoned:
            context.note(
                "mixed_zones", f"{self._naive} rows have no zone, {self._zoned} rows have one."
            )


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    file = _AzureFile(context)
    yield from CsvTable(_REQUIRED, context).rows(records, file.row)
    file.describe_clock()


FORMATS: tuple[Format, ...] = (
    Format(
        name="azure",
        title="Azure LLM inference trace 2023–2025 (CSV)",
        framing="csv",
        best_grade="L",
        supplies=("arrived_at_ns", "prompt_tokens", "output_tokens", "request_type"),
        missing={
            "reuse": "the trace has no ids and no block hashes;"
            " a trace with them, such as the Mooncake or Bailian shape",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
            "sessions": "a trace with session ids",
        },
        versions="AzurePublicDataset: 2023 code and conversation, 2024 one-week files,"
        " 2025 multimodal (columns from the published files and notebook)",
        sniff=_sniff,
        read=_read,
        enable_hint="a public data set; for your own service, log arrival, prompt tokens and"
        " output tokens at the gateway",
    ),
)
