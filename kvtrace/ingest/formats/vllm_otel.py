"""vLLM's request spans in OTLP JSON, as the OpenTelemetry collector's file exporter writes them.

Spans read from the sources of vLLM 0.6 to 0.33 (`--otlp-traces-endpoint`): `llm_request`, one a
request, from its arrival to its last token; times in seconds since arrival as attributes. V0 spans
have `time_in_scheduler` and `time_in_model_forward` and may lack the prefill time, which then is
TTFT minus queue. A line (or the whole file) is one export request with any number of spans; 64-bit
integers are JSON strings there. Spans of other programs in the same file are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec

from kvtrace.ingest.clocks import INT64_MAX, seconds_to_ns
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.jsonfields import (
    Ignored,
    between_ns,
    decode_json,
    flag_lengths,
    json_record_rows,
    keys_of,
    mean_per_token_ns,
)
from kvtrace.ingest.limits import MAX_COUNT
from kvtrace.schema.manifest import Status
from kvtrace.units import MIB

_SPAN: Final = "llm_request"
_LATENCY: Final = "gen_ai.latency."
_INVALID_FLAG: Final = "invalid_attribute"
_V0_NAMES: Final = (f"{_LATENCY}time_in_scheduler", f"{_LATENCY}time_in_model_forward")
_MAX_DIGITS: Final = 40
_MAX_ADJUSTED: Final = 16
_ERROR_CODES: Final = (2, "2", "STATUS_CODE_ERROR")


class _Value(msgspec.Struct, gc=False):
    string: object = msgspec.field(default=None, name="stringValue")
    integer: object = msgspec.field(default=None, name="intValue")
    double: object = msgspec.field(default=None, name="doubleValue")


class _Attribute(msgspec.Struct, gc=False):
    key: str = ""
    value: _Value | None = None


class _Status(msgspec.Struct, gc=False):
    code: int | str | None = None


class _Span(msgspec.Struct, gc=False):
    name: str = ""
    start: int | None = msgspec.field(default=None, name="startTimeUnixNano")
    end: int | None = msgspec.field(default=None, name="endTimeUnixNano")
    attributes: list[_Attribute] | None = None
    status: _Status | None = None


class _Scope(msgspec.Struct, gc=False):
    spans: list[_Span] | None = None


class _Resource(msgspec.Struct, gc=False):
    scopes: list[_Scope] | None = msgspec.field(default=None, name="scopeSpans")
    old_scopes: list[_Scope] | None = msgspec.field(
        default=None, name="instrumentationLibrarySpans"
    )


class _Export(msgspec.Struct, gc=False):
    resources: list[_Resource] | None = msgspec.field(default=None, name="resourceSpans")


_DECODER: Final = msgspec.json.Decoder(_Export, strict=False)


class _Attributes:
    """The attributes of one span by key, and whether one of those asked for was unusable."""

    def __init__(self, listed: list[_Attribute]) -> None:
        self._values = {item.key: item.value for item in listed if item.value is not None}
        self.is_odd = False

    def names(self) -> Iterable[str]:
        return self._values.keys()

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        return value.string if value is not None and isinstance(value.string, str) else None

    def count(self, *keys: str) -> int | None:
        """The count of the first key that is there."""
        number = self._number(*keys)
        if number is None:
            return None
        if number == number.to_integral_value() and 0 <= number <= MAX_COUNT:
            return int(number)
        self.is_odd = True
        return None

    def seconds_ns(self, *keys: str) -> int | None:
        """Nanoseconds of the first key that is there; a negative time is unknown."""
        number = self._number(*keys)
        ns = None if number is None else seconds_to_ns(number)
        if ns is not None and ns >= 0:
            return ns
        self.is_odd = self.is_odd or number is not None
        return None

    def _number(self, *keys: str) -> Decimal | None:
        value = next((self._values[key] for key in keys if key in self._values), None)
        if value is None:
            return None
        raw = value.integer if value.double is None else value.double
        number = _decimal(raw if raw is not None else value.string)
        self.is_odd = self.is_odd or number is None
        return number


def _decimal(raw: object) -> Decimal | None:
    """The exact number of a JSON number or text of sensible size; None if it is none."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    text = str(raw)
    if len(text) > _MAX_DIGITS or not text.isascii():
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number.adjusted() <= _MAX_ADJUSTED else None


class _SpanFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.has_start = False
        self.has_v0 = False
        self.spans = 0

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The requests of one export.

        Raises:
            msgspec.DecodeError: not JSON, or not the shape of an export.
        """
        export = decode_json(_DECODER, record.data)
        if export.resources is None:
            raise msgspec.ValidationError("no `resourceSpans`")
        rows: list[Row] = []
        for resource in export.resources:
            for scope in (*(resource.scopes or ()), *(resource.old_scopes or ())):
                ours = (span for span in scope.spans or () if span.name == _SPAN)
                rows.extend(self._row(record, span) for span in ours)
        return rows or Ignored("no_vllm_span")

    def _row(self, record: Record, span: _Span) -> RequestRow:
        told = _Attributes(span.attributes or [])
        self.spans += 1
        self.has_v0 = self.has_v0 or any(name in _V0_NAMES for name in told.names())
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=told.text("gen_ai.request.id"),
            llm=told.text("gen_ai.response.model") or told.text("gen_ai.request.model"),
            arrived_at_ns=self._start(span),
            prompt_tokens=told.count("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"),
            output_tokens=told.count(
                "gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"
            ),
            status=_status(span),
        )
        flags: list[str] = []
        self._fill_times(row, span, told, flags)
        if told.is_odd:
            flags.append(_INVALID_FLAG)
        row.flags = tuple(flags)
        flag_lengths(row)
        return row

    def _start(self, span: _Span) -> int | None:
        if span.start is None or not 0 < span.start <= INT64_MAX:
            return None
        self.has_start = True
        return span.start

    def _fill_times(
        self, row: RequestRow, span: _Span, told: _Attributes, flags: list[str]
    ) -> None:
        """Times as vLLM measured them; where it did not, from others or the ends of the span.

        Formula: prefill = ttft - queue (V0); tpot = decode / (output - 1) of a single sequence.
        """
        row.queue_ns = told.seconds_ns(f"{_LATENCY}time_in_queue")
        row.ttft_ns = told.seconds_ns(f"{_LATENCY}time_to_first_token")
        row.ttft_from = None if row.ttft_ns is None else "arrival"
        row.e2e_ns = told.seconds_ns(f"{_LATENCY}e2e")
        if row.e2e_ns is None and row.arrived_at_ns is not None:
            row.e2e_ns = between_ns(row.arrived_at_ns, span.end or None, flags)
        row.prefill_ns = told.seconds_ns(f"{_LATENCY}time_in_model_prefill")
        if row.prefill_ns is None:
            row.prefill_ns = between_ns(row.queue_ns, row.ttft_ns, flags)
        decode_ns = told.seconds_ns(f"{_LATENCY}time_in_model_decode")
        if decode_ns is None:
            decode_ns = between_ns(row.ttft_ns, row.e2e_ns, flags)
        sequences = told.count("gen_ai.usage.num_sequences", "gen_ai.request.n")
        if sequences in (None, 1):
            row.tpot_ns = mean_per_token_ns(decode_ns, row.output_tokens)

    def describe(self) -> None:
        """Write down clock and engine."""
        context = self._context
        if self.has_start:
            context.clock, context.clock_resolution_ns = "utc", 1
            context.clock_reason = "startTimeUnixNano is epoch time"
        if self.has_v0:
            context.engine_version = "V0"
            context.engine_version_reason = "spans have time_in_scheduler or time_in_model_forward"


def _status(span: _Span) -> Status:
    return "error" if span.status is not None and span.status.code in _ERROR_CODES else "ok"


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _SpanFile(context)
    context.engine = "vllm"
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _guess(head: Head) -> Guess | None:
    """Whether spans of vLLM are in the head, be it whole exports or the start of a long one."""
    objects = head.json_objects
    ours = sum(_has_our_span(item) for item in objects)
    if ours:
        return Guess(
            0.6 + 0.38 * ours / len(objects),
            f"{ours} of {len(objects)} OTLP exports have llm_request spans of vLLM",
        )
    if not objects and '"resourceSpans"' in head.text[:256] and f'"{_SPAN}"' in head.text:
        return Guess(0.9, "a long OTLP export with llm_request spans of vLLM")
    return None


def _has_our_span(item: dict[str, object]) -> bool:
    for resource in _listed(item.get("resourceSpans")):
        for name in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in _listed(resource.get(name)):
                if any(span.get("name") == _SPAN for span in _listed(scope.get("spans"))):
                    return True
    return False


def _listed(value: object) -> list[dict[str, object]]:
    """The objects of a JSON array; none of anything else."""
    return [item for item in value if keys_of(item)] if isinstance(value, list) else []


def _is_document(head: Head) -> bool:
    """Whether the first export spans several lines."""
    return len(head.lines) > 1 and not head.lines[0].rstrip().endswith("}")


def _sniff_lines(head: Head) -> Guess | None:
    return None if _is_document(head) else _guess(head)


def _sniff_document(head: Head) -> Guess | None:
    return _guess(head) if _is_document(head) else None


_LINES: Final = Format(
    name="vllm_otel",
    title="vLLM request spans (OTLP JSON, an export a line)",
    framing="lines",
    best_grade="L",
    supplies=(
        "request_id",
        "llm",
        "arrived_at_ns",
        "prompt_tokens",
        "output_tokens",
        "queue_ns",
        "prefill_ns",
        "ttft_ns",
        "tpot_ns",
        "e2e_ns",
        "status",
    ),
    missing={
        "reuse, and the capacity curve": "block hashes; vLLM: --kv-events-config"
        ' \'{"enable_kv_cache_events":true,"publisher":"zmq"}\' with a subscriber that writes a'
        " file",
        "observed cache hits": "usage with cached_tokens in a gateway log (vLLM:"
        " --enable-prompt-tokens-details); spans have none",
    },
    versions="vLLM 0.6 to 0.33 tracing (SpanAttributes), V0 and V1; collector file exporter",
    sniff=_sniff_lines,
    read=_read,
    enable_hint="vllm serve --otlp-traces-endpoint grpc://COLLECTOR:4317, and a file exporter with"
    " format: json in the collector",
    max_record_bytes=128 * MIB,
)
FORMATS: tuple[Format, ...] = (
    _LINES,
    replace(
        _LINES,
        name="vllm_otel_document",
        title="vLLM request spans (OTLP JSON, one document over many lines)",
        framing="json",
        sniff=_sniff_document,
    ),
)
