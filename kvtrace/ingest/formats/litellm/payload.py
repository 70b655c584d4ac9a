"""LiteLLM's StandardLoggingPayload, and rows of its spend logs as JSON (the API's answers)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kvtrace.ingest.contract import Guess, Head, ReadContext, Record, Row
from kvtrace.ingest.formats.litellm.attempts import Attempt, LiteLlmFile
from kvtrace.ingest.prompts.bodies import Body
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.values.jsonfields import decode_json
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_flag, raw_text

_USAGE: Final = msgspec.json.Decoder(dict[str, object])


class _Metadata(msgspec.Struct, gc=False):
    user_api_key_hash: object = None
    user_api_key_team_id: object = None
    usage_object: msgspec.Raw = NO_VALUE
    additional_usage_values: msgspec.Raw = NO_VALUE
    status: object = None
    error_information: msgspec.Raw = NO_VALUE


class _WithUsage(msgspec.Struct, gc=False):
    """hidden_params or the response: of either only the usage is looked at."""

    usage_object: msgspec.Raw = NO_VALUE
    usage: msgspec.Raw = NO_VALUE


class _Parameters(Body, gc=False):
    """Of the parameters: the earlier response, and what a prompt has beside its messages."""

    previous_response_id: object = None


class _Error(msgspec.Struct, gc=False):
    error_code: object = None


class _Payload(msgspec.Struct, gc=False):
    id: object = None
    request_id: object = None
    litellm_call_id: object = None
    session_id: object = None
    call_type: object = None
    stream: msgspec.Raw = NO_VALUE
    status: object = None
    prompt_tokens: object = None
    completion_tokens: object = None
    total_tokens: object = None
    startTime: msgspec.Raw = NO_VALUE
    endTime: msgspec.Raw = NO_VALUE
    completionStartTime: msgspec.Raw = NO_VALUE
    model: object = None
    cache_hit: msgspec.Raw = NO_VALUE
    end_user: object = None
    team_id: object = None
    api_key: object = None
    metadata: msgspec.Raw = NO_VALUE
    hidden_params: msgspec.Raw = NO_VALUE
    model_parameters: msgspec.Raw = NO_VALUE
    error_information: msgspec.Raw = NO_VALUE
    response: msgspec.Raw = NO_VALUE
    messages: msgspec.Raw = NO_VALUE
    proxy_server_request: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Payload)
_METADATA: Final = msgspec.json.Decoder(_Metadata)
_WITH_USAGE: Final = msgspec.json.Decoder(_WithUsage)
_PARAMETERS: Final = msgspec.json.Decoder(_Parameters)
_ERROR: Final = msgspec.json.Decoder(_Error)
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")


class _PayloadFile:
    def __init__(self, context: ReadContext) -> None:
        self.calls = LiteLlmFile(context)

    def rows(self, record: Record) -> list[Prompted]:
        """The request of one record.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        metadata = nested(_METADATA, raw.metadata) or _Metadata()
        error = nested(_ERROR, raw.error_information) or nested(_ERROR, metadata.error_information)
        parameters = nested(_PARAMETERS, raw.model_parameters)
        call = Attempt(
            request_id=id_of(raw.id) or id_of(raw.request_id) or id_of(raw.litellm_call_id),
            session_id=id_of(raw.session_id),
            parent_id=None if parameters is None else id_of(parameters.previous_response_id),
            tenant=tenant_of(
                metadata.user_api_key_team_id,
                raw.team_id,
                metadata.user_api_key_hash,
                raw.api_key,
                raw.end_user,
            ),
            llm=name_of(raw.model),
            call_type=name_of(raw.call_type),
            status=name_of(raw.status) or name_of(metadata.status),
            error_code=None if error is None else id_of(error.error_code),
            is_cache_hit=raw_flag(raw.cache_hit) is True,
            is_stream=raw_flag(raw.stream),
            started_at=raw_text(raw.startTime),
            first_at=raw_text(raw.completionStartTime),
            ended_at=raw_text(raw.endTime),
            usage=_usage(raw, metadata),
        )
        row = self.calls.row(record, call)
        return [self.calls.prompted(row, raw.messages, parameters, raw.proxy_server_request)]


def tenant_of(*candidates: object) -> str | None:
    """The first known of team, key and end user; it is hashed like every id."""
    return next((text for value in candidates if (text := id_of(value))), None)


def _usage(raw: _Payload, metadata: _Metadata) -> Mapping[str, object]:
    """The counts of the record, which include Anthropic's reads and writes, beside the details.

    The usage object moved from hidden_params to metadata; before both only the response has one.
    """
    usage = nested(_USAGE, metadata.usage_object)
    usage = usage or nested(_USAGE, metadata.additional_usage_values)
    for place in (raw.hidden_params, raw.response):
        if usage:
            break
        holder = nested(_WITH_USAGE, place) or _WithUsage()
        usage = nested(_USAGE, holder.usage_object) or nested(_USAGE, holder.usage)
    usage = dict(usage or {})
    for name in _COUNTS:
        value = getattr(raw, name)
        if value is not None:
            usage[name] = value
    return usage


def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """The calls of a file of payloads."""
    file = _PayloadFile(context)
    yield from file.calls.prompted_rows(records, file.rows)
    file.calls.describe()


def sniff(head: Head) -> Guess | None:
    """Records with LiteLLM's own keys."""
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.38 * ours / len(objects),
        f"{ours} of {len(objects)} records have LiteLLM's keys (litellm_call_id, or startTime,"
        " completionStartTime and call_type)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return (
        "litellm_call_id" in item
        or "model_map_information" in item
        or {"startTime", "completionStartTime", "call_type"} <= set(item)
    )
