"""TabbyAPI logs: one metrics line a request, with cached and new tokens since mid-2024.

Lines read from the sources of TabbyAPI before and after May 2024. The total is from arrival to the
last token; the rates divide new tokens by the time of prefill, and output by the time after the
first token. Lines wrapped at the width of a terminal are damaged.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from kvtrace.ingest.clocks import NO_TIME
from kvtrace.ingest.contract import Format, LogContext, LogLine, RequestRow, Tally
from kvtrace.ingest.textlog.fields import BadField, count_of, earlier, elapsed_ns
from kvtrace.ingest.textlog.formats import log_format
from kvtrace.ingest.values.jsonfields import flag_lengths, mean_per_token_ns
from kvtrace.units import NS_PER_S

_LEVEL = re.compile(r"(?:INFO|DEBUG): {1,8}")
_START = re.compile(r"Metrics(?: \(ID: |: [0-9]+ tokens generated in )")
_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)"
_RATE = r"([0-9]{1,12}(?:\.[0-9]{1,12})?|Indeterminate)"
_METRICS = re.compile(
    r"Metrics(?: \(ID: ([^()\s]{1,128})\))?: ([0-9]{1,12}) tokens generated in"
    rf" {_NUMBER} seconds \(Queue: {_NUMBER} s, Process: "
    rf"(?:([0-9]{{1,12}}) cached tokens and ([0-9]{{1,12}}) new tokens at )?{_RATE} T/s,"
    rf" Generate: {_RATE} T/s, Context: ([0-9]{{1,12}}) tokens"
    r"(?:, [A-Z][\w :/().%-]{1,200})?\) {0,8}"
)
_MAX_MESSAGE: Final = 2_000
_MAX_RATE_DIGITS: Final = Decimal("1e-6")


class TabbyLog:
    """The TabbyAPI lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally: Tally = log.context.tally
        self._emit = log.emit
        self._has_hits = False
        self._has_old = False

    def take(self, line: LogLine) -> bool:
        """Whether the line is TabbyAPI's; then it has its outcome."""
        message = line.message
        if message.startswith(("INFO: ", "DEBUG: ")):
            level = _LEVEL.match(message)
            message = message[level.end() :] if level is not None else message
        if not message.startswith("Metrics") or _START.match(message) is None:
            return False
        match = _METRICS.fullmatch(message) if len(message) < _MAX_MESSAGE else None
        if match is None:
            self._tally.reject(line.record, "damaged_line", "metrics")
            return True
        try:
            row = self._row(line, match)
        except BadField as bad:
            self._tally.reject(line.record, "invalid_field", str(bad))
            return True
        self._tally.use()
        time = line.time
        self._emit(row, None if time == NO_TIME else earlier(time, row.e2e_ns or 0))
        return True

    def _row(self, line: LogLine, match: re.Match[str]) -> RequestRow:
        request_id, generated, total, queued, cached, new, prefill_rate, rate, context = (
            match.groups()
        )
        flags: list[str] = []
        output = count_of("tokens generated", generated)
        cached_tokens, new_tokens = count_of("cached", cached), count_of("new", new)
        prompt = count_of("Context", context)
        if cached_tokens is not None and new_tokens is not None:
            if cached_tokens + new_tokens != prompt:
                flags.append("total_mismatch")
            prompt = cached_tokens + new_tokens
        self._has_hits |= cached_tokens is not None
        self._has_old |= cached_tokens is None
        queue_ns = elapsed_ns("Queue", queued, flags)
        prefill_ns = _time_of(new_tokens, prefill_rate)
        ttft_ns = None if queue_ns is None or prefill_ns is None else queue_ns + prefill_ns
        row = RequestRow(
            offset=line.record.offset,
            line=line.record.line,
            request_id=request_id,
            prompt_tokens=prompt,
            cached_tokens=cached_tokens,
            computed_tokens=new_tokens,
            output_tokens=output,
            queue_ns=queue_ns,
            prefill_ns=prefill_ns,
            ttft_ns=ttft_ns,
            ttft_from=None if ttft_ns is None else "arrival",
            tpot_ns=mean_per_token_ns(_time_of(output, rate), output),
            e2e_ns=elapsed_ns("seconds", total, flags),
            flags=tuple(flags),
        )
        flag_lengths(row)
        return row

    def finish(self) -> None:
        """Say what the log holds."""
        context = self._context
        context.engine = "tabbyapi"
        context.evidence_grade = "B" if self._has_hits else "L"
        if self._has_old:
            context.note(
                "cached_tokens_not_printed",
                "TabbyAPI before mid-2024 prints no cached tokens; they are unknown, not zero.",
            )


def _time_of(tokens: int | None, rate: str) -> int | None:
    """Nanoseconds that so many tokens take at a printed rate; None where either is unknown."""
    if tokens is None or rate == "Indeterminate" or Decimal(rate) < _MAX_RATE_DIGITS:
        return None
    return round(Decimal(tokens) / Decimal(rate) * NS_PER_S)


FORMATS: tuple[Format, ...] = (
    log_format(
        "tabbyapi_text",
        title="TabbyAPI log (metrics lines)",
        best_grade="B",
        supplies=(
            "request_id",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "computed_tokens",
            "output_tokens",
            "queue_ns",
            "prefill_ns",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
        ),
        missing={
            "reuse": "the prompts' token ids, which are not logged",
            "cached_tokens": "a newer TabbyAPI: its metrics lines print them",
        },
        versions="TabbyAPI before May 2024 and since (sources)",
        prefixes=("none", "formatted"),
        open=TabbyLog,
        enable_hint="on by default; write the log to a file or pipe, since a terminal wraps lines",
    ),
)
