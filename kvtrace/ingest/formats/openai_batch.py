"""Files of batch APIs, input and output: OpenAI's (and vLLM's run-batch), Anthropic's, Gemini's.

Read from openai 3.57 and anthropic 2.14: one result a line, with `custom_id` and the response or
the error. The only time is `created`, in whole seconds, when the batch service ran the request. An
input file has one request a line, with `custom_id` and the body (OpenAI), `params` (Anthropic) or
`request` (Gemini), and no time: the prompts alone.
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
from kvtrace.ingest.families.gateways import GatewayFile, status_in, status_of_code
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.jsonfields import decode_json, json_record_rows, keys_of
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_text
from kvtrace.schema.manifest import Status


class _Body(msgspec.Struct, gc=False):
    id: object = None
    responseId: object = None
    created: msgspec.Raw = NO_VALUE
    created_at: msgspec.Raw = NO_VALUE
    model: object = None
    modelVersion: object = None
    usage: dict[str, object] | None = None
    usageMetadata: dict[str, object] | None = None


class _Response(_Body, gc=False):
    """OpenAI puts the response under `body`; Gemini's is the response itself."""

    status_code: msgspec.Raw = NO_VALUE
    request_id: object = None
    body: _Body | None = None


class _Asked(msgspec.Struct, gc=False):
    custom_id: object = None
    key: object = None
    body: msgspec.Raw = NO_VALUE
    params: msgspec.Raw = NO_VALUE
    request: msgspec.Raw = NO_VALUE


class _Named(msgspec.Struct, gc=False):
    model: object = None
    safety_identifier: object = None
    user: object = None
    metadata: msgspec.Raw = NO_VALUE


class _Whose(msgspec.Struct, gc=False):
    """The metadata of Anthropic's requests."""

    user_id: object = None


class _Outcome(msgspec.Struct, gc=False):
    type: object = None
    message: _Body | None = None


class _Result(msgspec.Struct, gc=False):
    custom_id: object = None
    key: object = None
    response: _Response | None = None
    result: _Outcome | None = None
    error: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Result)
_ASKED: Final = msgspec.json.Decoder(_Asked)
_NAMED: Final = msgspec.json.Decoder(_Named)
_WHOSE: Final = msgspec.json.Decoder(_Whose)
_BODIES: Final = ("body", "params", "request")
_NO_ERROR: Final = (b"", b"null")


class _BatchFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Row]:
        """The request of one result.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        name = id_of(raw.custom_id) or id_of(raw.key)
        has_error = bytes(raw.error) not in _NO_ERROR
        if raw.response is None and raw.result is None and not has_error:
            raise msgspec.ValidationError("neither response nor error")
        response = raw.response or _Response()
        outcome = raw.result or _Outcome()
        body = response.body or outcome.message or response
        flags: list[str] = []
        created = body.created if raw_text(body.created) is not None else body.created_at
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(body.id)
            or id_of(body.responseId)
            or id_of(response.request_id)
            or name,
            llm=name_of(body.model) or name_of(body.modelVersion),
            request_type="batch",
            arrived_at_ns=self.gateway.instants.raw_ns("created", created, flags),
            status=_status(raw, has_error=has_error),
        )
        usage = body.usage or body.usageMetadata
        return [self.gateway.fill(row, read_usage(usage) if usage else None, flags)]


class _InputFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Prompted]:
        """The request of one line of an input file.

        Raises:
            msgspec.DecodeError: not JSON, or it has no request in it.
        """
        raw = decode_json(_ASKED, record.data)
        body = next((one for name in _BODIES if bytes(one := getattr(raw, name))[:1] == b"{"), None)
        if body is None:
            raise msgspec.ValidationError("no request")
        named = decode_json(_NAMED, bytes(body))
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.custom_id) or id_of(raw.key),
            user=_user(named),
            llm=name_of(named.model),
            request_type="batch",
        )
        return [self.gateway.bodies.prompted(row, body)]


def _user(named: _Named) -> str | None:
    """OpenAI has `user` and its successor `safety_identifier`, Anthropic `metadata.user_id`."""
    whose = nested(_WHOSE, named.metadata) or _Whose()
    return id_of(named.safety_identifier) or id_of(named.user) or id_of(whose.user_id)


def _status(raw: _Result, *, has_error: bool) -> Status:
    if raw.result is not None:
        kind = name_of(raw.result.type)
        return "ok" if kind == "succeeded" else "cancelled" if kind == "canceled" else "error"
    if has_error or raw.response is None:
        return "error"
    return status_of_code(status_in("status_code", raw.response.status_code))


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _BatchFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("created")
    if context.clock == "utc":
        context.note(
            "arrival_from_created",
            "Arrival is the response's `created`, the second in which the batch service ran the"
            " request: it is not when somebody asked.",
        )


def _read_input(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _InputFile(context)
    yield from file.gateway.prompted_rows(records, file.rows)
    file.gateway.finish("created")
    context.note(
        "batch_input_only",
        "An input file of a batch says what was asked, not when it ran or what came back: lengths"
        " are estimated from the prompts, and their order is that of the file.",
    )


def _sniff_input(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_asked(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(objects),
        f"{ours} of {len(objects)} records are requests of a batch (custom_id and body)",
    )


def _is_asked(item: Mapping[str, object]) -> bool:
    if "custom_id" in item:
        return isinstance(item.get("body", item.get("params")), dict)
    return "key" in item and "contents" in keys_of(item.get("request"))


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(objects),
        f"{ours} of {len(objects)} records are results of a batch (custom_id and response)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    if "custom_id" in item:
        return "response" in item or "type" in keys_of(item.get("result"))
    return "key" in item and "usageMetadata" in keys_of(item.get("response"))


FORMATS: tuple[Format, ...] = (
    Format(
        name="openai_batch",
        title="Batch output of OpenAI, vLLM, Anthropic or Gemini (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "status",
        ),
        missing={
            "reuse": "block identity: the engines' KV events (--kv-events-config)",
            "cached_tokens": "vLLM run-batch with --enable-prompt-tokens-details",
            "ttft": "a batch has none; the engine's spans (vLLM: --otlp-traces-endpoint)",
            "e2e": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "a batch has none",
        },
        versions="openai 3.57 and anthropic 2.14, types of batch results; vLLM 0.33 run-batch",
        sniff=_sniff,
        read=_read,
        enable_hint="download the output file of the batch (and its error file)",
    ),
    Format(
        name="openai_batch_input",
        title="Batch input of OpenAI, vLLM, Anthropic or Gemini (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=("request_id", "user", "llm", "request_type", "prompt_tokens", "block_keys"),
        missing={
            "cached_tokens": "the output file of the batch, and vLLM run-batch with"
            " --enable-prompt-tokens-details",
            "ttft": "a batch has none; the engine's spans (vLLM: --otlp-traces-endpoint)",
            "e2e": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "a batch has none",
        },
        versions="openai 3.57 and anthropic 2.14, types of batch requests; vLLM 0.33 run-batch",
        sniff=_sniff_input,
        read=_read_input,
        enable_hint="the file that was uploaded with purpose=batch",
    ),
)
