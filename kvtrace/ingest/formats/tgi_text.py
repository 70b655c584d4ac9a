"""Text Generation Inference: the router's line at the end of each request, with its times.

Lines read from public issues of TGI 1.0 to 3.0 (text and `--json-output`): fields of the request's
span as Rust prints durations. There are no prompt and no cached tokens; output tokens are the
inference time over the time a token, where that is a whole number as far as it is printed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, LogContext, LogLine, RequestRow, Tally
from kvtrace.ingest.textlog.fields import (
    BadField,
    earlier,
    key_values,
    printed_duration_ns,
    split_spans,
)
from kvtrace.ingest.textlog.formats import log_format
from kvtrace.ingest.values.limits import MAX_COUNT

_SPAN = re.compile(
    r"(?:compat_generate|generate|generate_stream|chat_completions|completions"
    r"|vertex_compatibility)\{"
)
_FIRST_FIELD: Final = 'total_time="'
_MARK: Final = "inference_time"
_RELATIVE_TOLERANCE: Final = Decimal("0.01")
_TOLERANCE: Final = Decimal("0.25")
"""Tokens that the quotient may be off a whole number."""


class _Line(msgspec.Struct, gc=False):
    span: dict[str, object]


_JSON: Final = msgspec.json.Decoder(_Line)


class TgiLog:
    """The TGI lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally: Tally = log.context.tally
        self._emit = log.emit

    def take(self, line: LogLine) -> bool:
        """Whether the line is TGI's; then it has its outcome."""
        if line.document is not None:
            return self._json(line)
        if line.label is not None:
            if not line.label.startswith("text_generation_"):
                return False
            self._tally.ignore("other_engine_line")
            return True
        message = line.message
        if _SPAN.match(message) is None:
            return False
        spans, rest = split_spans(message)
        if not spans or "text_generation_router" not in rest:
            # another program's span of that name, or the line is cut
            if _MARK not in message and "GenerateParameters" not in message:
                return False
            self._tally.reject(line.record, "damaged_line", "span of a request")
            return True
        head, found, tail = spans[-1].rpartition(_FIRST_FIELD)
        if not found or not (not head or head.endswith(" ")):
            self._tally.ignore("other_engine_line")
        elif not rest.endswith(": Success"):
            self._unfinished(line)
        else:
            self._success(line, key_values(found + tail))
        return True

    def _unfinished(self, line: LogLine) -> None:
        if line.terminated:
            self._tally.ignore("other_engine_line")
        else:
            self._tally.reject(line.record, "damaged_line", "the file ends inside the line")

    def _json(self, line: LogLine) -> bool:
        document = line.document or ""
        if line.message != "Success" or f'"{_MARK}"' not in document:
            return False
        try:
            span = _JSON.decode(document).span
        except (msgspec.DecodeError, RecursionError):
            return False
        fields = {key: value for key, value in span.items() if isinstance(value, str)}
        self._success(line, fields)
        return True

    def _success(self, line: LogLine, fields: dict[str, str] | None) -> None:
        try:
            row = _row(line, fields)
        except BadField as bad:
            self._tally.reject(line.record, "damaged_line", str(bad))
            return
        self._tally.use()
        self._emit(row, earlier(line.time, row.e2e_ns or 0))

    def finish(self) -> None:
        """Say which engine it was."""
        self._context.engine = "tgi"
        self._context.evidence_grade = "L"


def _row(line: LogLine, fields: dict[str, str] | None) -> RequestRow:
    """The row of a request that ended well.

    Raises:
        BadField: a time is missing or is none.
    """
    if fields is None:
        raise BadField("fields of the span")
    times = {
        name: printed_duration_ns(name, fields.get(name, ""))
        for name in ("total_time", "queue_time", "inference_time", "time_per_token")
    }
    return RequestRow(
        offset=line.record.offset,
        line=line.record.line,
        output_tokens=_output_tokens(times["inference_time"], times["time_per_token"]),
        queue_ns=times["queue_time"],
        e2e_ns=times["total_time"],
    )


def _output_tokens(inference_ns: int, token_ns: int) -> int | None:
    """Tokens that were generated; None if the times do not give a whole number clearly."""
    if token_ns == 0:
        return None
    exact = Decimal(inference_ns) / token_ns
    if exact > MAX_COUNT:
        return None
    tokens = round(exact)
    off = abs(exact - tokens)
    is_clear = tokens > 0 and off <= min(_RELATIVE_TOLERANCE * tokens, _TOLERANCE)
    return tokens if is_clear else None


FORMATS: tuple[Format, ...] = (
    log_format(
        "tgi_text",
        title="Text Generation Inference router log",
        best_grade="L",
        supplies=("arrived_at_ns", "output_tokens", "queue_ns", "e2e_ns", "status"),
        missing={
            "prompt_tokens": "GET /metrics: tgi_request_input_length; or `details.prefill` of each"
            " response with decoder_input_details: true",
            "cached_tokens": "not printed by TGI",
            "ttft": "GET /metrics: tgi_batch_inference_duration with method=prefill",
        },
        versions="TGI 1.0 to 3.0 (public issues; shape partly from memory)",
        prefixes=("tracing", "formatted"),
        open=TgiLog,
        enable_hint="on by default at LOG_LEVEL=info; --json-output writes the same as JSON",
    ),
)
