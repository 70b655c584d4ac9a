"""Access logs of Higress with its AI plugins: `ai_log` is JSON inside a JSON string.

Read from the documents and sources of Higress 2.0 and 2.1 (ai-statistics): durations are in ms,
numbers were texts in older plugins; the oldest wrote the counts beside the other fields of the
line. The log may hold questions and answers, which are stepped over. The plugin writes the id of
the response (`chatcmpl-…`) as `chat_id`; where that is no such id, it stands for the conversation.
"""

from __future__ import annotations

import re
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
from kvtrace.ingest.families.gateways import (
    NOT_INFERENCE,
    GatewayFile,
    endpoint_of,
    status_in,
    status_of_code,
)
from kvtrace.ingest.usage import TokenUsage, read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_decimal, raw_text

_MS: Final = -3
_RESPONSE_ID: Final = re.compile(
    r"(?:chatcmpl|cmpl|embd|gen|msg|resp)[-_]|[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\Z"
)
"""Ids that OpenAI, Anthropic and the servers that follow them give to their responses."""


class _Line(msgspec.Struct, gc=False):
    start_time: msgspec.Raw = NO_VALUE
    duration: msgspec.Raw = NO_VALUE
    response_code: msgspec.Raw = NO_VALUE
    path: object = None
    request_id: object = None
    ai_log: msgspec.Raw = NO_VALUE
    input_token: msgspec.Raw = NO_VALUE


class _AiLog(msgspec.Struct, gc=False):
    model: object = None
    input_token: msgspec.Raw = NO_VALUE
    output_token: msgspec.Raw = NO_VALUE
    total_token: msgspec.Raw = NO_VALUE
    input_token_details: msgspec.Raw = NO_VALUE
    cached_tokens: msgspec.Raw = NO_VALUE
    reasoning_tokens: msgspec.Raw = NO_VALUE
    llm_first_token_duration: msgspec.Raw = NO_VALUE
    llm_service_duration: msgspec.Raw = NO_VALUE
    chat_id: object = None
    session_id: object = None
    consumer: object = None
    cache_status: object = None


_DECODER: Final = msgspec.json.Decoder(_Line)
_AI_LOG: Final = msgspec.json.Decoder(_AiLog)
_DETAILS: Final = msgspec.json.Decoder(dict[str, object])


class _HigressFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        told = _ai_log(raw.ai_log)
        if told is None and raw_text(raw.input_token) is not None:
            told = decode_json(_AI_LOG, record.data)
        path = name_of(raw.path)
        kind = None if path is None else endpoint_of(path)
        if told is None and kind is None:
            return Ignored(NOT_INFERENCE)
        ai = told or _AiLog()
        flags: list[str] = []
        chat = id_of(ai.chat_id)
        is_response = chat is not None and _RESPONSE_ID.match(chat) is not None
        took = raw_decimal("duration", raw.duration)
        if took is None:
            took = raw_decimal("llm_service_duration", ai.llm_service_duration)
        is_hit = (name_of(ai.cache_status) or "").lower() == "hit"
        first = raw_decimal("llm_first_token_duration", ai.llm_first_token_duration)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.request_id) or (chat if is_response else None),
            session_id=id_of(ai.session_id) or (None if is_response else chat),
            tenant=id_of(ai.consumer),
            llm=name_of(ai.model),
            request_type=kind,
            arrived_at_ns=self.gateway.instants.raw_ns("start_time", raw.start_time, flags),
            ttft_ns=None if is_hit else elapsed_ns("ttft", first, flags, power=_MS),
            e2e_ns=elapsed_ns("duration", took, flags, power=_MS),
            status="gateway_cache_hit"
            if is_hit
            else status_of_code(status_in("response_code", raw.response_code)),
        )
        if row.arrived_at_ns is None and row.e2e_ns is None and told is None:
            raise msgspec.ValidationError("neither tokens nor times of a request")
        return [self.gateway.fill(row, _usage(ai), flags)]


def _ai_log(value: msgspec.Raw) -> _AiLog | None:
    """The object in the string, once more escaped in some templates; None if there is none."""
    text = raw_text(value)
    if text is None and bytes(value)[:1] != b"{":
        return None
    found = nested(_AI_LOG, value)
    if found is None and text is not None:
        bare = text.replace('\\"', '"').encode("utf-8", "replace")
        found = nested(_AI_LOG, msgspec.Raw(bare))
    return found


def _usage(ai: _AiLog) -> TokenUsage | None:
    details = nested(_DETAILS, ai.input_token_details)
    return read_usage(
        {
            "input_tokens": raw_text(ai.input_token),
            "output_tokens": raw_text(ai.output_token),
            "total_tokens": raw_text(ai.total_token),
            "input_tokens_details": details or {"cached_tokens": raw_text(ai.cached_tokens)},
            "output_tokens_details": {"reasoning_tokens": raw_text(ai.reasoning_tokens)},
        }
    )


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _HigressFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("start_time")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.37 * ours / len(objects),
        f"{ours} of {len(objects)} records have an ai_log, or input_token and output_token"
        " (Higress)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return "ai_log" in item or {"input_token", "output_token", "start_time"} <= set(item)


FORMATS: tuple[Format, ...] = (
    Format(
        name="higress",
        title="Higress access log with ai_log (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "tenant",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "ttft_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            "reuse": "block identity, which no gateway writes: the engines' KV events"
            " (--kv-events-config)",
            "cached_tokens": "a newer ai-statistics plugin that logs input_token_details, and an"
            " engine that reports it (vLLM --enable-prompt-tokens-details)",
            "ttft": "streamed calls only; the engine's spans (vLLM: --otlp-traces-endpoint)",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
        },
        versions="Higress 2.0 and 2.1, ai-statistics as documented; its chat_id names a response",
        sniff=_sniff,
        read=_read,
        enable_hint="the ai-statistics plugin, and in the access log format"
        ' "ai_log":"%FILTER_STATE(wasm.ai_log:PLAIN)%"',
    ),
)
