"""Results of LLMServingSim: a CSV row a simulated request, all times in ns.

`latency` runs from arrival to the last token, `TTFT` and `queuing_delay` from arrival. `TPOT` is 0
where one token was generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import ReadContext, Record, RequestRow
from kvtrace.ingest.values.cells import BadCellError, CsvTable, parse_count, parse_decimal

RESULT_COLUMNS: Final = ("request id", "input", "output", "arrival", "latency")


def read_results(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    """Simulated requests, in file order (that of their end)."""
    context.clock, context.clock_resolution_ns = "relative", 1
    context.clock_reason = "arrival counts nanoseconds from the start of the simulation"
    context.note(
        "simulated",
        "every time in the file was computed by a simulator; none was measured",
        severity="warning",
    )
    yield from CsvTable(RESULT_COLUMNS, context).rows(records, _result_row)


def _result_row(record: Record, cell: dict[str, str]) -> RequestRow:
    output_tokens = parse_count(cell["output"], "output")
    ttft_ns = _time_ns(cell, "TTFT")
    return RequestRow(
        offset=record.offset,
        line=record.line,
        request_id=cell["request id"] or None,
        llm=cell.get("model") or None,
        arrived_at_ns=_time_ns(cell, "arrival"),
        prompt_tokens=parse_count(cell["input"], "input"),
        output_tokens=output_tokens,
        queue_ns=_time_ns(cell, "queuing_delay"),
        ttft_ns=ttft_ns,
        ttft_from=None if ttft_ns is None else "arrival",
        tpot_ns=_time_ns(cell, "TPOT") if output_tokens > 1 else None,
        e2e_ns=_time_ns(cell, "latency"),
    )


def _time_ns(cell: dict[str, str], column: str) -> int | None:
    """Whole nanoseconds; None where the file has no such column or an empty cell."""
    text = cell.get(column, "")
    if not text:
        return None
    number = parse_decimal(text, column)
    if not 0 <= number <= INT64_MAX:
        raise BadCellError("invalid_time", f"`{column}` is negative or past 64 bits of ns")
    return int(number)
