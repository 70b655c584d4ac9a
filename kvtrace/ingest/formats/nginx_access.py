"""JSON access logs of nginx in front of an engine: times and outcomes, no tokens.

Read from the documents of nginx's log module (`log_format … escape=json`) up to 1.27. A line is
written when the request has ended: `$msec`, `$time_iso8601` and `$time_local` are its end, so
arrival = end - $request_time. `$upstream_response_time` holds one time for every upstream tried,
`a, b`. `$upstream_header_time` is below the time to first token and not stored as that. 499: the
client closed the connection.
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
from kvtrace.ingest.families.gateways import (
    NOT_INFERENCE,
    GatewayFile,
    endpoint_of,
    status_in,
    status_of_code,
)
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, raw_decimal, raw_text
from kvtrace.schema.manifest import Status

RETRIED_FLAG: Final = "retried"


class _Line(msgspec.Struct, gc=False):
    msec: msgspec.Raw = NO_VALUE
    time_iso8601: msgspec.Raw = NO_VALUE
    time_local: msgspec.Raw = NO_VALUE
    request: msgspec.Raw = NO_VALUE
    request_uri: msgspec.Raw = NO_VALUE
    uri: msgspec.Raw = NO_VALUE
    status: msgspec.Raw = NO_VALUE
    request_time: msgspec.Raw = NO_VALUE
    upstream_response_time: msgspec.Raw = NO_VALUE
    upstream_cache_status: msgspec.Raw = NO_VALUE
    request_id: object = None


_DECODER: Final = msgspec.json.Decoder(_Line)


class _AccessFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        path = _path(raw)
        if path is None and any(map(bytes, (raw.request, raw.request_uri, raw.uri))):
            return Ignored(NOT_INFERENCE)  # of a connection without a request line
        if path is None:
            raise msgspec.ValidationError("no request line (`request` or `request_uri`)")
        kind = endpoint_of(path)
        if kind is None:
            return Ignored(NOT_INFERENCE)
        flags: list[str] = []
        took_ns = elapsed_ns("request_time", raw_decimal("request_time", raw.request_time), flags)
        end_ns = next(
            (
                ns
                for field in ("msec", "time_iso8601", "time_local")
                if (ns := self.gateway.instants.raw_ns(field, getattr(raw, field), flags))
                is not None
            ),
            None,
        )
        if end_ns is None and took_ns is None:
            raise msgspec.ValidationError("neither the end nor the duration of a request")
        if len(_upstreams(raw)) > 1:
            flags.append(RETRIED_FLAG)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.request_id),
            request_type=kind,
            arrived_at_ns=None if end_ns is None or took_ns is None else end_ns - took_ns,
            e2e_ns=took_ns,
            status=_status(raw),
        )
        return [self.gateway.fill(row, None, flags)]


def _path(raw: _Line) -> str | None:
    """The path of `POST /v1/chat/completions HTTP/1.1`, or of the fields that hold it alone."""
    request = raw_text(raw.request)
    words = [] if request is None else request.split(" ")
    if len(words) > 1:
        return words[1]
    return raw_text(raw.request_uri) or raw_text(raw.uri) or request


def _upstreams(raw: _Line) -> list[str]:
    """A time or `-` for every upstream tried; `:` stands between groups of upstreams."""
    text = raw_text(raw.upstream_response_time)
    return [] if text is None else text.replace(" : ", ", ").split(", ")


def _status(raw: _Line) -> Status:
    if (raw_text(raw.upstream_cache_status) or "").upper() in ("HIT", "STALE"):
        return "gateway_cache_hit"
    return status_of_code(status_in("status", raw.status))


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _AccessFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("end of the request less request_time")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.55 + 0.35 * ours / len(objects),
        f"{ours} of {len(objects)} records have request_time and the time of the line (nginx)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return "request_time" in item and any(
        name in item for name in ("msec", "time_iso8601", "time_local")
    )


FORMATS: tuple[Format, ...] = (
    Format(
        name="nginx_access",
        title="nginx access log (JSON lines)",
        framing="lines",
        best_grade="L",
        supplies=("request_id", "request_type", "arrived_at_ns", "e2e_ns", "status"),
        missing={
            "prompt_tokens": "a gateway that reads usage (Envoy AI Gateway, LiteLLM, Kong), or the"
            " engine's own request log (vLLM: --enable-log-requests)",
            "output_tokens": "a gateway that reads usage, or the engine's own log (vLLM:"
            " --enable-log-outputs)",
            "cached_tokens": "the engine's usage: vLLM --enable-prompt-tokens-details",
            "reuse": "block identity: the engines' KV events (--kv-events-config)",
            "ttft": "the engine's spans (vLLM: --otlp-traces-endpoint); $upstream_header_time"
            " is only a lower bound",
            "sessions": "a gateway that logs a session header",
        },
        versions="nginx 1.27, variables of ngx_http_log_module and ngx_http_upstream_module",
        sniff=_sniff,
        read=_read,
        enable_hint="log_format kv escape=json"
        ' \'{"msec":"$msec","request":"$request","status":"$status",'
        '"request_time":"$request_time","upstream_response_time":"$upstream_response_time",'
        '"request_id":"$request_id"}\'; access_log /var/log/nginx/kv.log kv;',
    ),
)
