"""The summary of a store client: a heading with prefix, then lines without one.

The lines belong to the last heading of the same process; anything that is no such line, from
whichever program, is left to others. A summary takes no more lines than it can have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from kvtrace.ingest.contract import LineTime, LogLine
from kvtrace.ingest.formats.mooncake_store.transfers import (
    CALLS,
    HEADING,
    LATENCY,
    RATE,
    SUMMARY_STARTS,
    TOTAL,
)
from kvtrace.ingest.formats.mooncake_store.units import size_bytes

_MAX_LINES: Final = 64
_MAX_LINE_CHARS: Final = 300
_LAST: Final = "Batch Put"


@dataclass(slots=True)
class Summary:
    """One summary so far."""

    offset: int
    line: int
    time: LineTime
    process: str
    totals: dict[str, float] = field(default_factory=dict)
    """Bytes since start, by `Read` and `Write`."""
    p95_s: dict[str, float | None] = field(default_factory=dict)
    """Upper bound of the P95 since start, by `Get`, `Put`, `Batch Get`, `Batch Put`."""
    lines: int = 0
    is_given: bool = False


class Summaries:
    """The open summary of each process."""

    def __init__(self) -> None:
        self._open: dict[str, Summary] = {}

    def begin(self, line: LogLine) -> Summary | None:
        """A heading with prefix; the summary before it, if that was not given out yet."""
        process = line.writer or ""
        before = self.close(process)
        record = line.record
        self._open[process] = Summary(record.offset, record.line, line.time, process)
        return before

    def close(self, process: str) -> Summary | None:
        """The process wrote something else: its summary has ended."""
        found = self._open.pop(process, None)
        return None if found is None or found.is_given or not found.totals else found

    def rest(self) -> list[Summary]:
        """Summaries that the file ended in."""
        held = [self.close(process) for process in list(self._open)]
        return [summary for summary in held if summary is not None]

    def take(self, line: LogLine) -> tuple[str, Summary | None] | None:
        """(what the line is, the summary if it is complete); None if it is no line of one.

        What it is: `used`, `damaged`, or the reason why it carries nothing.
        """
        summary, text = self._open.get(line.writer or ""), line.text
        if summary is None or len(text) > _MAX_LINE_CHARS or summary.lines >= _MAX_LINES:
            return None
        kind = _read(summary, text, is_whole=line.terminated)
        if kind is None:
            return None
        summary.lines += 1
        is_done = text.startswith(f"{_LAST}: ") and not summary.is_given and bool(summary.totals)
        summary.is_given |= is_done
        return kind, summary if is_done else None


def _read(summary: Summary, text: str, *, is_whole: bool) -> str | None:
    """Enter one line; what it is, or None if it is none of a summary."""
    total = TOTAL.fullmatch(text)
    if total is not None:
        size = size_bytes(total[2])
        if not is_whole or size is None or total[1] in summary.totals:
            return "damaged"
        summary.totals[total[1]] = size
        return "used"
    latency = LATENCY.fullmatch(text)
    if latency is not None and latency[1] not in summary.p95_s:
        if not is_whole:
            return "damaged"
        bound = latency[3]
        if bound is None:
            return "no_transfers"
        summary.p95_s[latency[1]] = float(Decimal(bound).scaleb(-6))
        return "used"
    if HEADING.fullmatch(text) or text.startswith(SUMMARY_STARTS):
        return "summary_heading"
    if CALLS.fullmatch(text):
        return "client_call_latency"
    if RATE.fullmatch(text):
        return "mean_since_start"
    return "damaged" if text.startswith(("Total Read: ", "Total Write: ")) else None
