"""Access logs of Apache APISIX with the variables of its AI plugins (`llm_*`), JSON lines.

Names read from the documents of APISIX 3.13 (ai-proxy, request_type and llm_* variables);
`llm_time_to_first_token` (ms) from its examples. As in nginx a line is written at the end of its
request: arrival = end - request_time, unless the log has `start_time`.
"""

from __future__ import annotations

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
from kvtrace.ingest.gateways import GatewayFile, endpoint_of, status_in, status_of_code
from kvtrace.ingest.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.rawvalues import NO_VALUE, id_of, name_of, raw_decimal, raw_text
from kvtrace.ingest.usage import TokenUsage, read_usage

NO_CALL: Final = "without_llm_call"
_ENDS: Final = ("msec", "time_iso8601", "timestamp", "time_local")
_MS: Final = -3


class _Line(msgspec.Struct, gc=False):
    start_time: msgspec.Raw = NO_VALUE
    msec: msgspec.Raw = NO_VALUE
    time_iso8601: msgspec.Raw = NO_VALUE
    timestamp: msgspec.Raw = NO_VALUE
    time_local: msgspec.Raw = NO_VALUE
    request_time: msgspec.Raw = NO_VALUE
    latency: msgspec.Raw = NO_VALUE
    status: msgspec.Raw = NO_VALUE
    uri: object = None
    request_uri: object = None
    request_id: object = None
    request_type: object = None
    consumer_name: object = None
    llm_model: object = None
    request_llm_model: object = None
    llm_prompt_tokens: msgspec.Raw = NO_VALUE
    llm_completion_tokens: msgspec.Raw = NO_VALUE
    llm_total_tokens: msgspec.Raw = NO_VALUE
    llm_cache_read_input_tokens: msgspec.Raw = NO_VALUE
    llm_cache_creation_input_tokens: msgspec.Raw = NO_VALUE
    llm_time_to_first_token: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Line)


class _ApisixFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        usage = _usage(raw)
        path = name_of(raw.uri) or name_of(raw.request_uri)
        kind = None if path is None else endpoint_of(path)
        if kind is None and not _is_called(usage):
            return Ignored(NO_CALL)
        flags: list[str] = []
        took_ns = elapsed_ns("request_time", raw_decimal("request_time", raw.request_time), flags)
        if took_ns is None:
            took_ns = elapsed_ns("latency", raw_decimal("latency", raw.latency), flags, power=_MS)
        first = raw_decimal("llm_time_to_first_token", raw.llm_time_to_first_token)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.request_id),
            tenant=id_of(raw.consumer_name),
            llm=name_of(raw.llm_model) or name_of(raw.request_llm_model),
            request_type=kind,
            arrived_at_ns=self._arrival(raw, took_ns, flags),
            ttft_ns=elapsed_ns("ttft", first or None, flags, power=_MS),
            e2e_ns=took_ns,
            status=status_of_code(status_in("status", raw.status)),
        )
        return [self.gateway.fill(row, usage if _is_called(usage) else None, flags)]

    def _arrival(self, raw: _Line, took_ns: int | None, flags: list[str]) -> int | None:
        instants = self.gateway.instants
        start = instants.raw_ns("start_time", raw.start_time, flags)
        if start is not None or took_ns is None:
            return start
        for field in _ENDS:
            end = instants.raw_ns(field, getattr(raw, field), flags)
            if end is not None:
                return end - took_ns
        return None


def _usage(raw: _Line) -> TokenUsage | None:
    return read_usage(
        {
            "prompt_tokens": raw_text(raw.llm_prompt_tokens),
            "completion_tokens": raw_text(raw.llm_completion_tokens),
            "total_tokens": raw_text(raw.llm_total_tokens),
            "cache_read_input_tokens": raw_text(raw.llm_cache_read_input_tokens),
            "cache_creation_input_tokens": raw_text(raw.llm_cache_creation_input_tokens),
        }
    )


def _is_called(usage: TokenUsage | None) -> bool:
    """Whether a model was called: without, the variables are empty or 0."""
    return usage is not None and bool(usage.prompt_tokens or usage.output_tokens)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ApisixFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("start_time, or the end of the request less request_time")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(objects),
        f"{ours} of {len(objects)} records have llm_prompt_tokens (APISIX)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return "llm_prompt_tokens" in item or "llm_completion_tokens" in item


FORMATS: tuple[Format, ...] = (
    Format(
        name="apisix",
        title="Apache APISIX access log with llm_* variables (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "tenant",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "ttft_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            "reuse": "block identity, which no gateway writes: the engines' KV events"
            " (--kv-events-config)",
            "cached_tokens": "$llm_cache_read_input_tokens in the log format, and an engine that"
            " reports it (vLLM --enable-prompt-tokens-details)",
            "ttft": "$llm_time_to_first_token in the log format",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "a gateway that logs a session id",
        },
        versions="Apache APISIX 3.13 as documented (not read from sources)",
        sniff=_sniff,
        read=_read,
        enable_hint="nginx_config.http.access_log_format_escape: json, and in access_log_format"
        ' {"msec":"$msec","request_time":"$request_time","status":"$status","uri":"$uri",'
        '"llm_model":"$llm_model","llm_prompt_tokens":"$llm_prompt_tokens",'
        '"llm_completion_tokens":"$llm_completion_tokens"}',
    ),
)
