"""Logs of Apache APISIX with its AI plugins, JSON lines: access logs with the variables `llm_*`,
and entries of its logger plugins with `llm_summary`.

Read from the sources of APISIX 3.13 to 3.15 (ai-proxy/base.lua, ai-transport). The variable
`llm_time_to_first_token` (ms; `duration` of the summary) is the whole time of a call that does not
stream: it is taken of `ai_stream` requests only. As in nginx a line is written at the end of its
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
from kvtrace.ingest.families.gateways import GatewayFile, endpoint_of, status_in, status_of_code
from kvtrace.ingest.usage import TokenUsage, read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.values.rawvalues import (
    NO_VALUE,
    id_of,
    name_of,
    nested,
    raw_decimal,
    raw_flag,
    raw_text,
)

NO_CALL: Final = "without_llm_call"
_ENDS: Final = ("msec", "time_iso8601", "timestamp", "time_local")
_MS: Final = -3


class _Summary(msgspec.Struct, gc=False):
    model: object = None
    request_model: object = None
    prompt_tokens: msgspec.Raw = NO_VALUE
    completion_tokens: msgspec.Raw = NO_VALUE
    total_tokens: msgspec.Raw = NO_VALUE
    cache_read_input_tokens: msgspec.Raw = NO_VALUE
    cache_creation_input_tokens: msgspec.Raw = NO_VALUE
    duration: msgspec.Raw = NO_VALUE
    stream: msgspec.Raw = NO_VALUE


class _Part(msgspec.Struct, gc=False):
    """Request, response or consumer of a logger's entry."""

    uri: object = None
    status: msgspec.Raw = NO_VALUE
    username: object = None


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
    llm_summary: msgspec.Raw = NO_VALUE
    request: msgspec.Raw = NO_VALUE
    response: msgspec.Raw = NO_VALUE
    consumer: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Line)
_SUMMARY: Final = msgspec.json.Decoder(_Summary)
_PART: Final = msgspec.json.Decoder(_Part)


class _ApisixFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        summary = nested(_SUMMARY, raw.llm_summary) or _of_variables(raw)
        request = nested(_PART, raw.request) or _Part()
        usage = _usage(summary)
        path = name_of(raw.uri) or name_of(raw.request_uri) or name_of(request.uri)
        kind = None if path is None else endpoint_of(path)
        if kind is None and not _is_called(usage):
            return Ignored(NO_CALL)
        return [self._row(record, raw, summary, kind)]

    def _row(self, record: Record, raw: _Line, summary: _Summary, kind: str | None) -> RequestRow:
        flags: list[str] = []
        took_ns = elapsed_ns("request_time", raw_decimal("request_time", raw.request_time), flags)
        if took_ns is None:
            took_ns = elapsed_ns("latency", raw_decimal("latency", raw.latency), flags, power=_MS)
        consumer = nested(_PART, raw.consumer) or _Part()
        response = nested(_PART, raw.response) or _Part()
        status = response.status if raw_text(raw.status) is None else raw.status
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.request_id),
            tenant=id_of(raw.consumer_name) or id_of(consumer.username),
            llm=name_of(summary.model) or name_of(summary.request_model),
            request_type=kind,
            arrived_at_ns=self._arrival(raw, took_ns, flags),
            e2e_ns=took_ns,
            status=status_of_code(status_in("status", status)),
        )
        if raw.request_type == "ai_stream" or raw_flag(summary.stream):
            first = raw_decimal("llm_time_to_first_token", summary.duration)
            row.ttft_ns = elapsed_ns("ttft", first or None, flags, power=_MS)
        usage = _usage(summary)
        return self.gateway.fill(row, usage if _is_called(usage) else None, flags)

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


def _of_variables(raw: _Line) -> _Summary:
    """The summary that the variables of an access log make."""
    return _Summary(
        model=raw.llm_model,
        request_model=raw.request_llm_model,
        prompt_tokens=raw.llm_prompt_tokens,
        completion_tokens=raw.llm_completion_tokens,
        total_tokens=raw.llm_total_tokens,
        cache_read_input_tokens=raw.llm_cache_read_input_tokens,
        cache_creation_input_tokens=raw.llm_cache_creation_input_tokens,
        duration=raw.llm_time_to_first_token,
    )


def _usage(summary: _Summary) -> TokenUsage | None:
    return read_usage(
        {
            "prompt_tokens": raw_text(summary.prompt_tokens),
            "completion_tokens": raw_text(summary.completion_tokens),
            "total_tokens": raw_text(summary.total_tokens),
            "cache_read_input_tokens": raw_text(summary.cache_read_input_tokens),
            "cache_creation_input_tokens": raw_text(summary.cache_creation_input_tokens),
        },
        is_copied=True,
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
        f"{ours} of {len(objects)} records have llm_prompt_tokens or llm_summary (APISIX)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return bool({"llm_prompt_tokens", "llm_completion_tokens", "llm_summary"} & set(item))


FORMATS: tuple[Format, ...] = (
    Format(
        name="apisix",
        title="Apache APISIX log with llm_* variables or llm_summary (JSON lines)",
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
            "ttft": "$llm_time_to_first_token and $request_type in the log format; streams only",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "a gateway that logs a session id",
        },
        versions="Apache APISIX 3.13 to 3.15, ai-proxy and logger plugins",
        sniff=_sniff,
        read=_read,
        enable_hint="nginx_config.http.access_log_format_escape: json, and in access_log_format"
        ' {"msec":"$msec","request_time":"$request_time","status":"$status","uri":"$uri",'
        '"request_type":"$request_type","llm_model":"$llm_model",'
        '"llm_prompt_tokens":"$llm_prompt_tokens",'
        '"llm_completion_tokens":"$llm_completion_tokens",'
        '"llm_time_to_first_token":"$llm_time_to_first_token"}',
    ),
)
