"""JSON access logs of Envoy AI Gateway: the operator chooses the keys, so they are told by name.

Read from envoyproxy/ai-gateway (documents and examples up to 0.4): `gen_ai.usage.*` from the
dynamic metadata io.envoy.ai_gateway, Envoy's own operators beside them. `-` and null mean absent,
numbers may be texts. The cached tokens need a cost of type CachedInputToken. The upstream service
time ends with the response headers: it is below the time to first token and not stored as that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

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
from kvtrace.ingest.usage import read_attributes
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.values.rawvalues import NO_VALUE, raw_decimal, raw_text

Role = Literal[
    "cached",
    "write",
    "total",
    "output",
    "input",
    "start",
    "duration",
    "code",
    "flags",
    "id",
    "session",
    "llm",
    "asked_llm",
    "tenant",
    "user",
    "path",
    "other",
]
_EXACT: Final[dict[str, Role]] = {
    "timestamp": "start",
    "time": "start",
    "ts": "start",
    "duration": "duration",
    "duration_ms": "duration",
    "request_duration": "duration",
    "total_duration": "duration",
    "response_code": "code",
    "status_code": "code",
    "status": "code",
    "response_status": "code",
    "http_response_status_code": "code",
    "path": "path",
    "request_path": "path",
    "url_path": "path",
    "x_envoy_original_path": "path",
    "x_envoy_origin_path": "path",
}
"""Whole keys, with everything but letters and digits as `_`; others end in such words too."""
_ENDINGS: Final[tuple[tuple[Role, str], ...]] = (
    ("other", r"(?:reasoning|thinking|audio|image)\w*_tokens?"),
    ("cached", r"cache_?read\w*_tokens?|cached_\w*tokens?"),
    ("write", r"cache_?(?:creation|write)\w*_tokens?"),
    ("total", r"total_tokens?"),
    ("output", r"(?:output|completion)_tokens?"),
    ("input", r"(?:input|prompt)_tokens?"),
    ("start", r"start_?time"),
    ("flags", r"response_flags"),
    ("id", r"request_id"),
    ("session", r"session_id|conversation_id"),
    ("llm", r"response_model"),
    ("asked_llm", r"request_model|model|model_name"),
    ("tenant", r"tenant|tenant_id"),
    ("user", r"user_id|enduser_id"),
)
"""Ends of keys; the first one that fits."""
_ENDS: Final[tuple[tuple[Role, re.Pattern[str]], ...]] = tuple(
    (role, re.compile(rf"(?:.*_)?(?:{end})", re.ASCII)) for role, end in _ENDINGS
)
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")
_MAX_KEY_CHARS: Final = 100
_USAGE: Final[tuple[tuple[Role, str], ...]] = (
    ("input", "gen_ai.usage.input_tokens"),
    ("output", "gen_ai.usage.output_tokens"),
    ("total", "gen_ai.usage.total_tokens"),
    ("cached", "gen_ai.usage.cache_read.input_tokens"),
    ("write", "gen_ai.usage.cache_creation.input_tokens"),
)
_CLIENT_GONE: Final = ("DC", "DownstreamConnectionTermination")
_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MS: Final = -3


@functools.lru_cache(maxsize=4096)
def role_of(key: str) -> Role:
    """What a key of the access log stands for, by its name."""
    if len(key) > _MAX_KEY_CHARS:
        return "other"
    words = _NO_WORD.sub("_", key.lower()).strip("_")
    if words in _EXACT:
        return _EXACT[words]
    return next((role for role, end in _ENDS if end.fullmatch(words)), "other")


class _AccessFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        told: dict[Role, msgspec.Raw] = {}
        for key, value in decode_json(_DECODER, record.data).items():
            role = role_of(key)
            if role != "other" and role not in told and raw_text(value) is not None:
                told[role] = value
        counts = {name: raw_text(told[role]) for role, name in _USAGE if role in told}
        path = _text(told, "path")
        if not counts and path is not None and endpoint_of(path) is None:
            return Ignored(NOT_INFERENCE)
        if not counts and "start" not in told:
            raise msgspec.ValidationError("neither tokens nor the start of a request")
        return [self._row(record, told, counts)]

    def _row(
        self, record: Record, told: Mapping[Role, msgspec.Raw], counts: Mapping[str, str | None]
    ) -> RequestRow:
        flags: list[str] = []
        path = _text(told, "path")
        is_gone = (_text(told, "flags") or "").split(",")[0] in _CLIENT_GONE
        duration = raw_decimal("duration", told.get("duration", NO_VALUE))
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=_text(told, "id"),
            session_id=_text(told, "session"),
            tenant=_text(told, "tenant"),
            user=_text(told, "user"),
            llm=_text(told, "llm") or _text(told, "asked_llm"),
            request_type=None if path is None else endpoint_of(path),
            arrived_at_ns=self.gateway.instants.raw_ns(
                "start_time", told.get("start", NO_VALUE), flags
            ),
            e2e_ns=elapsed_ns("duration", duration, flags, power=_MS),
            status="cancelled"
            if is_gone
            else status_of_code(status_in("response_code", told.get("code", NO_VALUE))),
        )
        return self.gateway.fill(row, read_attributes(counts), flags)


def _text(told: Mapping[Role, msgspec.Raw], role: Role) -> str | None:
    return raw_text(told.get(role, NO_VALUE))


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _AccessFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("start_time")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.55 + 0.38 * ours / len(objects),
        f"{ours} of {len(objects)} records are access log lines with token counts"
        " (gen_ai.usage.* or the like)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    """Flat token counts beside what Envoy says of a request."""
    has_counts = any(
        key.startswith("gen_ai.usage.")
        or (role_of(key) == "input" and ("envoy" in key or key.startswith(("llm", "ai_", "ai."))))
        for key in item
    )
    roles = {role_of(key) for key in item}
    is_of_gateway = any("envoy" in key for key in item) or bool({"code", "duration"} & roles)
    return has_counts and is_of_gateway and "start" in roles


FORMATS: tuple[Format, ...] = (
    Format(
        name="envoy_ai_gateway",
        title="Envoy AI Gateway access log (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "tenant",
            "user",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "e2e_ns",
            "status",
        ),
        missing={
            "reuse": "block identity, which no gateway writes: the engines' KV events"
            " (--kv-events-config)",
            "cached_tokens": "llmRequestCosts with type: CachedInputToken in the AIGatewayRoute,"
            " and an engine that reports it (vLLM --enable-prompt-tokens-details)",
            "ttft": "x-envoy-upstream-service-time ends with the headers; the engine's spans"
            " (vLLM: --otlp-traces-endpoint)",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "a request header with the conversation in the access log, as session.id",
        },
        versions="envoyproxy/ai-gateway up to 0.4, access log examples of its documents",
        sniff=_sniff,
        read=_read,
        enable_hint="EnvoyProxy telemetry.accessLog.settings with format type JSON:"
        " start_time %START_TIME%, duration %DURATION%, response_code %RESPONSE_CODE%,"
        " gen_ai.usage.input_tokens"
        " %DYNAMIC_METADATA(io.envoy.ai_gateway:llm_input_token)%, and so on for output and"
        " cached_input",
    ),
)
