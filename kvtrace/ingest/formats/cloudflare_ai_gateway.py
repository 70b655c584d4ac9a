"""Logs of Cloudflare AI Gateway, from its API or an export.

Read from Cloudflare's API documents (ai-gateway logs): `duration` in ms, `created_at` mostly in
whole seconds. `cached` is a response out of the gateway's cache, no reuse of KV. `metadata` is the
client's own JSON in a string: of it only ids of tenant, user and session are looked at.
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
from kvtrace.ingest.families.envelopes import MAX_ANSWER_BYTES, Answers, entries_of
from kvtrace.ingest.families.gateways import GatewayFile, endpoint_of, status_in, status_of_code
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_decimal, raw_flag
from kvtrace.schema.manifest import Status

_SESSION_KEYS: Final = ("session_id", "sessionId", "session", "conversation_id", "conversationId")
_TENANT_KEYS: Final = ("tenant", "team")
_USER_KEYS: Final = ("user_id", "userId", "user")
_MS: Final = -3


class _Log(msgspec.Struct, gc=False):
    id: object = None
    model: object = None
    path: object = None
    status_code: msgspec.Raw = NO_VALUE
    success: msgspec.Raw = NO_VALUE
    cached: msgspec.Raw = NO_VALUE
    tokens_in: object = None
    tokens_out: object = None
    duration: msgspec.Raw = NO_VALUE
    created_at: msgspec.Raw = NO_VALUE
    metadata: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Log)
_METADATA: Final = msgspec.json.Decoder(dict[str, object])


class _LogFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def row(self, record: Record, data: bytes) -> Row | Ignored:
        """The request of one log entry.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, data)
        flags: list[str] = []
        usage = read_usage({"input_tokens": raw.tokens_in, "output_tokens": raw.tokens_out})
        created = self.gateway.instants.raw_ns("created_at", raw.created_at, flags)
        if created is None and (usage is None or usage.prompt_tokens is None):
            raise msgspec.ValidationError("neither tokens nor the time of a request")
        metadata = nested(_METADATA, raw.metadata) or {}
        path = name_of(raw.path)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.id),
            session_id=_first_id(metadata, _SESSION_KEYS),
            tenant=_first_id(metadata, _TENANT_KEYS),
            user=_first_id(metadata, _USER_KEYS),
            llm=name_of(raw.model),
            request_type=None if path is None else endpoint_of("/" + path),
            arrived_at_ns=created,
            e2e_ns=elapsed_ns("duration", raw_decimal("duration", raw.duration), flags, power=_MS),
            status=_status(raw),
        )
        return self.gateway.fill(row, usage, flags)


def _status(raw: _Log) -> Status:
    if raw_flag(raw.cached):
        return "gateway_cache_hit"
    status = status_of_code(status_in("status_code", raw.status_code))
    return "error" if status == "ok" and raw_flag(raw.success) is False else status


def _first_id(metadata: Mapping[str, object], names: Iterable[str]) -> str | None:
    return next((text for name in names if (text := id_of(metadata.get(name)))), None)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _LogFile(context)
    answers: Answers[Row] = Answers(file.row)
    yield from json_record_rows(records, context.tally, answers.rows)
    answers.finish(context)
    file.gateway.finish("created_at")


def _sniff(head: Head) -> Guess | None:
    entries = list(entries_of(head.json_objects))
    ours = sum(_is_ours(item) for item in entries)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(entries),
        f"{ours} of {len(entries)} entries have tokens_in, tokens_out and cached (Cloudflare)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return {"tokens_in", "tokens_out", "cached"} <= set(item)


FORMATS: tuple[Format, ...] = (
    Format(
        name="cloudflare_ai_gateway",
        title="Cloudflare AI Gateway logs (JSON or JSON lines)",
        framing="lines",
        best_grade="L",
        supplies=(
            "request_id",
            "session_id",
            "tenant",
            "user",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "e2e_ns",
            "status",
        ),
        missing={
            "reuse": "block identity, which no gateway writes: the engines' KV events"
            " (--kv-events-config)",
            "cached_tokens": "Cloudflare logs none; the usage of the responses in your own log",
            "ttft": "measure it in the client; the engine's spans (vLLM: --otlp-traces-endpoint)",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": 'a header cf-aig-metadata: {"session_id": …} on the requests',
        },
        versions="Cloudflare API v4, ai-gateway logs as documented",
        sniff=_sniff,
        read=_read,
        enable_hint="GET /accounts/ACCOUNT/ai-gateway/gateways/GATEWAY/logs?per_page=50&page=N",
        max_record_bytes=MAX_ANSWER_BYTES,
    ),
)
