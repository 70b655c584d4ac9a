"""Spans of model calls in Jaeger's JSON: what its UI and query API save of traces.

Shapes read from the API of Jaeger 1.x and 2.x (`/api/traces`, "Trace JSON" of the UI): a document
`{"data": [traces]}`, or one trace with `spans` a record. `startTime` and `duration` are
microseconds; attributes are `tags` with a type; the parent is a reference of type CHILD_OF.
Processes (service, host) are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, Row
from kvtrace.ingest.spans.calls import CALL_COLUMNS, CallReader, Span
from kvtrace.ingest.spans.nesting import CallBook
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, json_record_rows, keys_of
from kvtrace.units import MIB, NS_PER_US

_HEAD_CHARS: Final = 4096
_SCOPES: Final = ("otel.scope.name", "otel.library.name")
_VERSIONS: Final = ("otel.scope.version", "otel.library.version")


class _Tag(msgspec.Struct, gc=False):
    key: str = ""
    value: object = None


class _Reference(msgspec.Struct, gc=False):
    kind: str = msgspec.field(default="CHILD_OF", name="refType")
    span_id: str = msgspec.field(default="", name="spanID")


class _Span(msgspec.Struct, gc=False):
    trace_id: str = msgspec.field(default="", name="traceID")
    span_id: str = msgspec.field(default="", name="spanID")
    parent_id: str | None = msgspec.field(default=None, name="parentSpanID")
    name: str = msgspec.field(default="", name="operationName")
    references: list[_Reference] | None = None
    start_us: int | None = msgspec.field(default=None, name="startTime")
    duration_us: int | None = msgspec.field(default=None, name="duration")
    tags: list[_Tag] | None = None


class _Trace(msgspec.Struct, gc=False):
    spans: list[_Span] | None = None


class _Document(_Trace, gc=False):
    data: list[_Trace] | None = None


_DECODER: Final = msgspec.json.Decoder(_Document, strict=False)


class _TraceFile:
    def __init__(self, context: ReadContext) -> None:
        self.calls = CallReader(context)
        self.book = CallBook(self.calls)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The calls that can go out after this record.

        Raises:
            msgspec.DecodeError: not JSON, or neither traces nor a trace.
        """
        document = decode_json(_DECODER, record.data)
        traces: list[_Trace] = document.data or []
        if document.data is None:
            if document.spans is None:
                raise msgspec.ValidationError("neither `data` nor `spans`")
            traces = [document]
        has_call = False
        for trace in traces:
            for found in trace.spans or ():
                span = _span(found)
                row = self.calls.row(record, span)
                self.book.add(span, row)
                has_call = has_call or row is not None
        return list(self.book.released()) if has_call else Ignored("no_model_call")


def _span(found: _Span) -> Span:
    start_ns = None if found.start_us is None else found.start_us * NS_PER_US
    has_end = start_ns is not None and found.duration_us is not None
    attributes = {tag.key: tag.value for tag in found.tags or ()}
    parents = (ref.span_id for ref in found.references or () if ref.kind == "CHILD_OF")
    return Span(
        name=found.name,
        scope=_text_of(attributes, _SCOPES),
        version=_text_of(attributes, _VERSIONS),
        trace_id=found.trace_id,
        span_id=found.span_id,
        parent_id=found.parent_id or next(parents, ""),
        start_ns=start_ns,
        end_ns=(start_ns or 0) + (found.duration_us or 0) * NS_PER_US if has_end else None,
        is_error=attributes.get("error") in (True, "true")
        or attributes.get("otel.status_code") == "ERROR",
        attributes=attributes,
    )


def _text_of(attributes: dict[str, object], names: tuple[str, ...]) -> str:
    found = (attributes.get(name) for name in names)
    return next((text for text in found if isinstance(text, str)), "")


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _TraceFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    yield from file.book.rest()
    file.calls.describe("startTime", resolution_ns=NS_PER_US)
    file.book.describe(context)


def _sniff(head: Head) -> Guess | None:
    ours = sum(map(_is_ours, head.json_objects))
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.95, "traces in Jaeger's JSON (spans with operationName, processes)")
    start = head.text[:_HEAD_CHARS]
    names = ('"traceID"', '"spans"', '"operationName"', '"spanID"')
    if not ours and all(name in start for name in names):
        return Guess(0.9, "a long document of traces in Jaeger's JSON")
    return None


def _is_ours(item: dict[str, object]) -> bool:
    data = item.get("data")
    first = data[0] if isinstance(data, list) and data else item
    return {"spans", "processes"} <= keys_of(first)


FORMATS: tuple[Format, ...] = (
    Format(
        name="jaeger",
        title="Spans of model calls (Jaeger JSON)",
        framing="json",
        best_grade="A",
        supplies=CALL_COLUMNS,
        missing={
            "reuse": "prompts on the spans, of which kvtrace makes block keys; vLLM:"
            " --kv-events-config"
            ' \'{"enable_kv_cache_events":true,"publisher":"zmq"}\' with a subscriber that writes a'
            " file",
            "cached_tokens": "SGLang's spans have them; vLLM's do not: its usage in a gateway's log"
            " (--enable-prompt-tokens-details), or a caller that writes"
            " gen_ai.usage.cache_read.input_tokens",
            "queue": "vLLM's own spans (--otlp-traces-endpoint); callers do not see the queue",
            "ttft": "vLLM's own spans, or gen_ai.response.time_to_first_chunk of the caller",
            "sessions": "gen_ai.conversation.id on the caller's spans",
            "requests": "every request, not the few hundred that a query returns: the file exporter"
            " of the OpenTelemetry collector, without sampling",
        },
        versions="Jaeger 1.x and 2.x query API (`/api/traces`); the attributes of otlp_genai",
        sniff=_sniff,
        read=_read,
        enable_hint="vllm serve --otlp-traces-endpoint grpc://JAEGER:4317, then"
        " `curl 'http://JAEGER:16686/api/traces?service=vllm-server&lookback=1h&limit=20000'`"
        " (better: a file exporter in the collector, see otlp_genai)",
        max_record_bytes=256 * MIB,
    ),
)
