"""AIBrix gateway logs (klog): start and end of each request with its token counts.

Lines read from the sources of AIBrix 0.3 to 0.5; the id is spelled `requestID` or `request_id`. The
gateway does not see what the engine's cache held. Target pods are not stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.contract import (
    Format,
    LineTime,
    LogClock,
    LogContext,
    LogLine,
    RequestRow,
    Tally,
)
from kvtrace.ingest.textlog.fields import BadField, count_of, key_values, llm_of
from kvtrace.ingest.textlog.formats import log_format
from kvtrace.ingest.values.jsonfields import flag_lengths

_MESSAGE = re.compile(r'"(request[ _]start|request[ _]end|processing request)"(?=\s|\Z)')
_CUT_MESSAGE = re.compile(r'"(?:request[ _](?:start|end)|processing request)\Z')
_MAX_OPEN: Final = 65_536
"""Requests without an end that are remembered; older ones are given as open."""


@dataclass(frozen=True, slots=True)
class _Start:
    offset: int
    line: int
    time: LineTime
    request_id: str
    llm: str | None


class AibrixLog:
    """The gateway's lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally: Tally = log.context.tally
        self._clock: LogClock = log.clock
        self._emit = log.emit
        self._open: dict[str, _Start] = {}

    def take(self, line: LogLine) -> bool:
        """Whether the line is the gateway's; then it has its outcome."""
        if not line.message.startswith(('"request', '"processing request')):
            return False
        match = _MESSAGE.match(line.message)
        if match is None:
            return self._is_cut(line)
        try:
            self._message(line, match[1], line.message[match.end() :])
        except BadField as bad:
            self._tally.reject(line.record, "damaged_line", str(bad))
        return True

    def _is_cut(self, line: LogLine) -> bool:
        if _CUT_MESSAGE.match(line.message) is None:
            return False
        self._tally.reject(line.record, "damaged_line", "the line ends inside the message")
        return True

    def _message(self, line: LogLine, message: str, tail: str) -> None:
        fields = key_values(tail)
        if fields is None or (not line.terminated and not tail.endswith('"')):
            raise BadField("pairs behind the message")
        request_id = fields.get("requestID") or fields.get("request_id")
        if message == "processing request":
            self._tally.ignore("gateway_event")
        elif not request_id:
            raise BadField("`requestID` is missing")
        elif message.endswith("start"):
            self._start(line, request_id, fields)
        else:
            self._end(line, request_id, fields)

    def _start(self, line: LogLine, request_id: str, fields: dict[str, str]) -> None:
        self._give_up(request_id)  # the id was used again before its end was seen
        if len(self._open) >= _MAX_OPEN:
            self._give_up(next(iter(self._open)))
        llm = llm_of(fields.get("model") or fields.get("model_name"))
        record = line.record
        self._open[request_id] = _Start(record.offset, record.line, line.time, request_id, llm)
        self._tally.use()

    def _end(self, line: LogLine, request_id: str, fields: dict[str, str]) -> None:
        prompt = count_of("prompt_tokens", fields.get("prompt_tokens"))
        output = count_of("completion_tokens", fields.get("completion_tokens"))
        total = count_of("total_tokens", fields.get("total_tokens"))
        start = self._open.pop(request_id, None)
        row = RequestRow(
            offset=line.record.offset if start is None else start.offset,
            line=line.record.line if start is None else start.line,
            request_id=request_id,
            llm=llm_of(fields.get("model_name")) or (None if start is None else start.llm),
            prompt_tokens=prompt,
            output_tokens=output,
        )
        if prompt == 0 and not output and not total:  # the engine sent no usage
            row.prompt_tokens = row.output_tokens = None
            row.flags = ("no_usage",)
        elif None not in (total, prompt, output) and total != (prompt or 0) + (output or 0):
            row.flags = ("total_mismatch",)
        flag_lengths(row)
        self._tally.use()
        if start is None:
            row.flags = (*row.flags, "dated_by_end")
            self._emit(row, line.time)
            return
        e2e_ns = self._clock.elapsed_ns(start.time, line.time)
        if e2e_ns is not None and e2e_ns < 0:
            row.flags, e2e_ns = (*row.flags, "time_order"), None
        row.e2e_ns = e2e_ns
        self._emit(row, start.time)

    def _give_up(self, request_id: str) -> None:
        start = self._open.pop(request_id, None)
        if start is not None:
            row = RequestRow(
                offset=start.offset,
                line=start.line,
                request_id=start.request_id,
                llm=start.llm,
                status="open",
            )
            self._emit(row, start.time)

    def finish(self) -> None:
        """Emit the requests whose end was not seen."""
        for request_id in list(self._open):
            self._give_up(request_id)
        self._context.engine = "aibrix"
        self._context.evidence_grade = "L"


FORMATS: tuple[Format, ...] = (
    log_format(
        "aibrix_text",
        title="AIBrix gateway log",
        best_grade="L",
        supplies=(
            "request_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "e2e_ns",
            "status",
        ),
        missing={
            "cached_tokens": "the engine's own log; with vLLM"
            " --enable-prompt-tokens-details the usage of each response has them",
            "reuse": "KV events of the engines (--kv-events-config)",
            "ttft": "the engines' metrics or traces (--otlp-traces-endpoint)",
        },
        versions="AIBrix 0.3 to 0.5 (sources)",
        prefixes=("glog",),
        open=AibrixLog,
        enable_hint="on by default; keep the log of deployment aibrix-gateway-plugins",
    ),
)
