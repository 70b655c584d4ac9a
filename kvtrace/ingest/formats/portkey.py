"""Log exports of Portkey: lengths, times and outcomes; no cached tokens at all.

Read from Portkey's documents of its log export (JSON lines): `req_units` and `res_units` are tokens
of prompt and response, `response_time` is in ms. `trace_id` groups calls of the client's choice.
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
from kvtrace.ingest.families.gateways import GatewayFile, status_in, status_of_code
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.usage import parsed_count, read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_decimal, raw_text
from kvtrace.schema.manifest import Status

_MS: Final = -3


class _Metadata(msgspec.Struct, gc=False):
    user: object = msgspec.field(name="_user", default=None)
    session_id: object = None


RETRIED_FLAG: Final = "retried"


class _Log(msgspec.Struct, gc=False):
    id: object = None
    created_at: msgspec.Raw = NO_VALUE
    is_success: msgspec.Raw = NO_VALUE
    ai_model: object = None
    req_units: object = None
    res_units: object = None
    total_units: object = None
    response_time: msgspec.Raw = NO_VALUE
    response_status_code: msgspec.Raw = NO_VALUE
    cache_status: object = None
    retry_success_count: object = None
    metadata: msgspec.Raw = NO_VALUE
    request: msgspec.Raw = NO_VALUE


class _Request(msgspec.Struct, gc=False):
    body: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Log)
_METADATA: Final = msgspec.json.Decoder(_Metadata)
_REQUEST: Final = msgspec.json.Decoder(_Request)


class _LogFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def row(self, record: Record, data: bytes) -> Prompted | Ignored:
        """The request of one log entry.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, data)
        flags: list[str] = []
        usage = read_usage(
            {
                "input_tokens": raw.req_units,
                "output_tokens": raw.res_units,
                "total_tokens": raw.total_units,
            }
        )
        created = self.gateway.instants.raw_ns("created_at", raw.created_at, flags)
        if created is None and (usage is None or usage.prompt_tokens is None):
            raise msgspec.ValidationError("neither tokens nor the time of a request")
        metadata = nested(_METADATA, raw.metadata) or _Metadata()
        took = raw_decimal("response_time", raw.response_time)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.id),
            session_id=id_of(metadata.session_id),
            user=id_of(metadata.user),
            llm=name_of(raw.ai_model),
            arrived_at_ns=created,
            e2e_ns=elapsed_ns("response_time", took, flags, power=_MS),
            status=_status(raw),
        )
        if parsed_count("retry_success_count", raw.retry_success_count):
            flags.append(RETRIED_FLAG)
        request = nested(_REQUEST, raw.request) if self.gateway.bodies.is_on else None
        inner = NO_VALUE if request is None else request.body
        return self.gateway.bodies.prompted(
            self.gateway.fill(row, usage, flags), inner, raw.request
        )


def _status(raw: _Log) -> Status:
    if (name_of(raw.cache_status) or "").upper() in ("HIT", "SEMANTIC HIT"):
        return "gateway_cache_hit"
    status = status_of_code(status_in("response_status_code", raw.response_status_code))
    is_failed = (raw_text(raw.is_success) or "").lower() in ("0", "false")
    return "error" if status == "ok" and is_failed else status


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _LogFile(context)
    answers = Answers(file.row)
    yield from file.gateway.prompted_rows(records, answers.rows)
    answers.finish(context)
    file.gateway.finish("created_at")


def _sniff(head: Head) -> Guess | None:
    entries = list(entries_of(head.json_objects))
    ours = sum(_is_ours(item) for item in entries)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(entries),
        f"{ours} of {len(entries)} entries have req_units and res_units (Portkey)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return {"req_units", "res_units"} <= set(item)


FORMATS: tuple[Format, ...] = (
    Format(
        name="portkey",
        title="Portkey log export (JSON or JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "user",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "e2e_ns",
            "status",
            "block_keys",
        ),
        missing={
            "reuse": "`request` in requested_data: kvtrace makes block keys of the prompts; or the"
            " engines' KV events (--kv-events-config)",
            "cached_tokens": "Portkey exports none; the usage of the responses in your own log",
            "ttft": "measure it in the client; the engine's spans (vLLM: --otlp-traces-endpoint)",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": 'a header x-portkey-metadata: {"session_id": …} on the requests',
        },
        versions="Portkey log exports as documented in 2025",
        sniff=_sniff,
        read=_read,
        enable_hint='POST /v1/logs/exports with requested_data ["id", "trace_id", "created_at",'
        ' "is_success", "ai_model", "req_units", "res_units", "total_units", "response_time",'
        ' "response_status_code", "metadata"]',
        max_record_bytes=MAX_ANSWER_BYTES,
    ),
)
