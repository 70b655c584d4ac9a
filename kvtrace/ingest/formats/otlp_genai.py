"""Spans of model calls in OTLP JSON, as the OpenTelemetry collector's file exporter writes them.

A line (or the file) is one export request with any number of spans; 64-bit integers are JSON
strings there, ids hex. Whose spans they are does not matter: those of engines (vLLM, SGLang,
TensorRT-LLM), gateways and agents stand in one file, often around each other (`spans`). Spans of
other kinds, attributes of resources and texts are passed over. Tempo's `batches` are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, Row
from kvtrace.ingest.spans.calls import CALL_COLUMNS, ENGINE_SPAN, CallReader, Span
from kvtrace.ingest.spans.nesting import CallBook
from kvtrace.ingest.spans.prompts import PROMPT_KEYS
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, json_record_rows, keys_of
from kvtrace.units import MIB

_ERROR_CODES: Final = (2, "2", "STATUS_CODE_ERROR")
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_MARKS: Final = ("gen_ai.", "llm.request.type", "llm.token_count.")
"""Starts of attribute names that only calls of models have."""


class _Value(msgspec.Struct, gc=False):
    string: object = msgspec.field(default=None, name="stringValue")
    integer: object = msgspec.field(default=None, name="intValue")
    double: object = msgspec.field(default=None, name="doubleValue")
    boolean: object = msgspec.field(default=None, name="boolValue")


class _Attribute(msgspec.Struct, gc=False):
    key: str = ""
    value: _Value | None = None


class _Event(msgspec.Struct, gc=False):
    attributes: list[_Attribute] | None = None


class _Status(msgspec.Struct, gc=False):
    code: int | str | None = None


class _Span(msgspec.Struct, gc=False):
    name: str = ""
    trace_id: str = msgspec.field(default="", name="traceId")
    span_id: str = msgspec.field(default="", name="spanId")
    parent_id: str | None = msgspec.field(default=None, name="parentSpanId")
    start: int | None = msgspec.field(default=None, name="startTimeUnixNano")
    end: int | None = msgspec.field(default=None, name="endTimeUnixNano")
    attributes: list[_Attribute] | None = None
    events: list[_Event] | None = None
    status: _Status | None = None


class _Library(msgspec.Struct, gc=False):
    name: str = ""
    version: str = ""


class _Scope(msgspec.Struct, gc=False):
    scope: _Library | None = None
    old_scope: _Library | None = msgspec.field(default=None, name="instrumentationLibrary")
    spans: list[_Span] | None = None


class _Resource(msgspec.Struct, gc=False):
    scopes: list[_Scope] | None = msgspec.field(default=None, name="scopeSpans")
    old_scopes: list[_Scope] | None = msgspec.field(
        default=None, name="instrumentationLibrarySpans"
    )


class _Export(msgspec.Struct, gc=False):
    resources: list[_Resource] | None = msgspec.field(default=None, name="resourceSpans")
    batches: list[_Resource] | None = None


_DECODER: Final = msgspec.json.Decoder(_Export, strict=False)


class _SpanFile:
    def __init__(self, context: ReadContext) -> None:
        self.calls = CallReader(context)
        self.book = CallBook(self.calls)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The calls that can go out after this export.

        Raises:
            msgspec.DecodeError: not JSON, or not the shape of an export.
        """
        export = decode_json(_DECODER, record.data)
        resources = export.batches if export.resources is None else export.resources
        if resources is None:
            raise msgspec.ValidationError("no `resourceSpans`")
        has_call = False
        for resource in resources:
            for scope in (*(resource.scopes or ()), *(resource.old_scopes or ())):
                library = scope.scope or scope.old_scope or _Library()
                for found in scope.spans or ():
                    span = _span(found, library)
                    row = self.calls.row(record, span)
                    self.book.add(span, row)
                    has_call = has_call or row is not None
        return list(self.book.released()) if has_call else Ignored("no_model_call")


def _span(found: _Span, library: _Library) -> Span:
    return Span(
        name=found.name,
        scope=library.name,
        version=library.version,
        trace_id=found.trace_id,
        span_id=found.span_id,
        parent_id=found.parent_id or "",
        start_ns=found.start,
        end_ns=found.end,
        is_error=found.status is not None and found.status.code in _ERROR_CODES,
        attributes=_attributes(found),
    )


def _attributes(found: _Span) -> dict[str, object]:
    """The attributes of a span, and those of its events that hold the prompt."""
    told = {
        item.key: _plain(item.value) for item in found.attributes or () if item.value is not None
    }
    for event in found.events or ():
        for item in event.attributes or ():
            if item.key in PROMPT_KEYS and item.value is not None:
                told.setdefault(item.key, _plain(item.value))
    return told


def _plain(value: _Value) -> object:
    """The value as JSON would have it: an integer is no text."""
    whole = value.integer
    if isinstance(whole, str) and _INTEGER.fullmatch(whole):
        whole = int(whole)
    kinds = (value.double, whole, value.string, value.boolean)
    return next((kind for kind in kinds if kind is not None), None)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _SpanFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    yield from file.book.rest()
    file.calls.describe("startTimeUnixNano", resolution_ns=1)
    file.book.describe(context)


def _sniff(head: Head) -> Guess | None:
    """Whether calls of models are in the head, be it whole exports or the start of a long one."""
    exports = [item for item in head.json_objects if _resources(item)]
    ours = sum(map(_has_call, exports))
    if ours and 2 * len(exports) >= len(head.json_objects):
        return Guess(
            0.6 + 0.38 * len(exports) / len(head.json_objects),
            f"{ours} of {len(exports)} OTLP exports have spans of model calls",
        )
    start = head.text[:256]
    is_long = '"resourceSpans"' in start or ('"batches"' in start and '"scopeSpans"' in head.text)
    names = (f'"{ENGINE_SPAN}"', *(f'"{mark}' for mark in _MARKS))
    if not exports and is_long and any(name in head.text for name in names):
        return Guess(0.9, "a long OTLP export with spans of model calls")
    if exports:
        return Guess(
            0.2,
            "OTLP exports of spans, but none at the start of the file has attributes of a model"
            " call (gen_ai.*)",
        )
    return None


def _resources(item: dict[str, object]) -> list[dict[str, object]]:
    return _listed(item.get("resourceSpans")) or [
        batch for batch in _listed(item.get("batches")) if "scopeSpans" in batch
    ]


def _has_call(item: dict[str, object]) -> bool:
    for resource in _resources(item):
        for name in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in _listed(resource.get(name)):
                if any(_is_marked(span) for span in _listed(scope.get("spans"))):
                    return True
    return False


def _is_marked(span: dict[str, object]) -> bool:
    keys = (str(item.get("key")) for item in _listed(span.get("attributes")))
    return span.get("name") == ENGINE_SPAN or any(key.startswith(_MARKS) for key in keys)


def _listed(value: object) -> list[dict[str, object]]:
    """The objects of a JSON array; none of anything else."""
    return [item for item in value if keys_of(item)] if isinstance(value, list) else []


FORMATS: tuple[Format, ...] = (
    Format(
        name="otlp_genai",
        title="Spans of model calls (OTLP JSON): engines, gateways, agents",
        framing="lines",
        best_grade="A",
        supplies=CALL_COLUMNS,
        missing={
            "reuse": "prompts on the spans, of which kvtrace makes block keys"
            " (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only); vLLM:"
            " --kv-events-config"
            ' \'{"enable_kv_cache_events":true,"publisher":"zmq"}\' with a subscriber that writes a'
            " file",
            "cached_tokens": "SGLang's spans have them; vLLM's do not: its usage in a gateway's log"
            " (--enable-prompt-tokens-details), or a caller that writes"
            " gen_ai.usage.cache_read.input_tokens",
            "queue": "vLLM's own spans (--otlp-traces-endpoint); callers do not see the queue",
            "ttft": "vLLM's own spans, or gen_ai.response.time_to_first_chunk of the caller",
            "sessions": "gen_ai.conversation.id on the caller's spans",
            "hit_ratio": "/metrics of the engine, scraped over the same time",
        },
        versions="vLLM 0.6 to 0.33 (V0 and V1), SGLang 0.5, TensorRT-LLM 1.x; OpenTelemetry GenAI"
        " conventions up to 0.66b2 with the older token names; OpenLLMetry, OpenInference;"
        " collector file exporter, Tempo",
        sniff=_sniff,
        read=_read,
        enable_hint="vllm serve --otlp-traces-endpoint grpc://COLLECTOR:4317 (SGLang:"
        " --enable-trace --otlp-traces-endpoint COLLECTOR:4317; callers:"
        " OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental), and in the collector the"
        " exporter `file: {path: spans.json, format: json}` of a traces pipeline without sampling",
        max_record_bytes=128 * MIB,
    ),
)
