"""Responses of any provider with their usage, one a line: OpenAI, Anthropic, Bedrock, Gemini, …

Shapes as in `kvtrace/ingest/usage/shapes.py`. A line is a response, a last chunk of a stream, or
an entry of a log of one's own with the usage object beside a time. Texts are stepped over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kvtrace.ingest.contract import (
    Format,
    Guess,
    Head,
    ReadContext,
    Record,
    RequestRow,
    Row,
)
from kvtrace.ingest.families.gateways import GatewayFile
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_decimal, raw_text

_TIMES: Final = ("ts", "timestamp", "time", "start_time", "created_at", "created")
_SERVER_TIMES: Final = ("created_at", "created")
_REMEMBERED_CHUNKS: Final = 4_096
_MS: Final = -3


class _Choice(msgspec.Struct, gc=False):
    finish_reason: object = None


class _Metrics(msgspec.Struct, gc=False):
    latencyMs: msgspec.Raw = NO_VALUE


class _Response(msgspec.Struct, gc=False):
    usage: msgspec.Raw = NO_VALUE
    usageMetadata: msgspec.Raw = NO_VALUE
    usage_metadata: msgspec.Raw = NO_VALUE
    id: object = None
    request_id: object = None
    responseId: object = None
    session_id: object = None
    conversation_id: object = None
    previous_response_id: object = None
    user_id: object = None
    model: object = None
    modelVersion: object = None
    kind: object = msgspec.field(name="object", default=None)
    choices: msgspec.Raw = NO_VALUE
    error: msgspec.Raw = NO_VALUE
    metrics: msgspec.Raw = NO_VALUE
    ts: msgspec.Raw = NO_VALUE
    timestamp: msgspec.Raw = NO_VALUE
    time: msgspec.Raw = NO_VALUE
    start_time: msgspec.Raw = NO_VALUE
    created_at: msgspec.Raw = NO_VALUE
    created: msgspec.Raw = NO_VALUE
    ttft_ms: msgspec.Raw = NO_VALUE
    latency_ms: msgspec.Raw = NO_VALUE
    duration_ms: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Response)
_USAGE: Final = msgspec.json.Decoder(dict[str, object])
_CHOICES: Final = msgspec.json.Decoder(list[_Choice])
_METRICS: Final = msgspec.json.Decoder(_Metrics)


class _UsageFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)
        self._context = context
        self._chunks: OrderedDict[str, None] = OrderedDict()

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        request_id = id_of(raw.request_id) or id_of(raw.id) or id_of(raw.responseId)
        is_failed = bytes(raw.error) not in (b"", b"null", b'""', b"false")
        usage = self._usage(raw)
        if not usage and not is_failed:
            return Ignored("without_usage")
        if (name_of(raw.kind) or "").endswith(".chunk") and self._is_repeat(request_id, raw):
            return Ignored("chunk_before_the_last")
        counts = read_usage(usage) if usage else None
        if counts is None and not is_failed:
            raise msgspec.ValidationError("`usage` has no count of a known name")
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=request_id,
            session_id=id_of(raw.session_id) or id_of(raw.conversation_id),
            parent_id=id_of(raw.previous_response_id),
            user=id_of(raw.user_id),
            llm=name_of(raw.model) or name_of(raw.modelVersion),
            arrived_at_ns=self._arrival(raw, flags),
            ttft_ns=elapsed_ns("ttft", raw_decimal("ttft_ms", raw.ttft_ms), flags, power=_MS),
            e2e_ns=self._duration(raw, flags),
            status="error" if is_failed else "ok",
        )
        return [self.gateway.fill(row, counts, flags)]

    def _usage(self, raw: _Response) -> Mapping[str, object]:
        for value in (raw.usage, raw.usageMetadata, raw.usage_metadata):
            found = nested(_USAGE, value)
            if found:
                return found
        return {}

    def _is_repeat(self, request_id: str | None, raw: _Response) -> bool:
        """Whether a chunk is not the last one of its stream, or the row is there already.

        Some servers write the usage so far into every chunk.
        """
        choices = nested(_CHOICES, raw.choices) or []
        if choices and all(choice.finish_reason is None for choice in choices):
            return True
        if request_id is None:
            return False
        if request_id in self._chunks:
            return True
        self._chunks[request_id] = None
        if len(self._chunks) > _REMEMBERED_CHUNKS:
            self._chunks.popitem(last=False)
        return False

    def _arrival(self, raw: _Response, flags: list[str]) -> int | None:
        for name in _TIMES:
            value = getattr(raw, name)
            if raw_text(value) is not None:
                if name in _SERVER_TIMES:
                    self._context.note(
                        "arrival_from_created",
                        "Arrival is the response's `created`: the server's clock when it began to"
                        " handle the request, mostly in whole seconds.",
                    )
                return self.gateway.instants.raw_ns(name, value, flags)
        return None

    def _duration(self, raw: _Response, flags: list[str]) -> int | None:
        metrics = nested(_METRICS, raw.metrics) or _Metrics()
        for value in (raw.latency_ms, raw.duration_ms, metrics.latencyMs):
            number = raw_decimal("latency_ms", value)
            if number is not None:
                return elapsed_ns("latency", number, flags, power=_MS)
        return None


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _UsageFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("time of the entry, or `created`")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.52 + 0.15 * ours / len(objects),
        f"{ours} of {len(objects)} records have a usage object of a known provider",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    for name in ("usage", "usageMetadata", "usage_metadata"):
        usage = item.get(name)
        if isinstance(usage, dict):
            try:
                return read_usage(usage) is not None
            except msgspec.ValidationError:
                return True
    return False


FORMATS: tuple[Format, ...] = (
    Format(
        name="provider_usage",
        title="Responses with the usage of any provider (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "parent_id",
            "user",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cache_write_tokens",
            "output_tokens",
            "ttft_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            "reuse": "block identity, which no response holds: the engines' KV events"
            " (--kv-events-config)",
            "arrivals": "a time beside each usage object, as ts",
            "cached_tokens": "vLLM --enable-prompt-tokens-details, SGLang --enable-cache-report",
            "ttft": "ttft_ms beside each usage object, measured by the client or the gateway",
            "e2e": "latency_ms beside each usage object",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "session_id or previous_response_id beside each usage object",
        },
        versions="openai 3.57, anthropic 2.14, Bedrock Converse, DeepSeek, Gemini, Cohere v2,"
        " vLLM 0.33, as typed in the clients' packages and documented",
        sniff=_sniff,
        read=_read,
        enable_hint='write {"ts": …, "session_id": …, "usage": response.usage} for every response,'
        " without choices; for streams ask for stream_options.include_usage",
    ),
)
