"""LiteLLM's StandardLoggingPayload, and rows of its spend logs as JSON (the API's answers)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kvtrace.ingest.contract import Guess, Head, ReadContext, Record, Row
from kvtrace.ingest.formats.litellm.attempts import UNREADABLE_FLAG, Attempt, LiteLlmFile
from kvtrace.ingest.formats.litellm.metadata import COUNTS, Metadata, first_id, user_of
from kvtrace.ingest.prompts.bodies import Body
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.values.jsonfields import decode_json, elapsed_ns
from kvtrace.ingest.values.rawvalues import (
    NO_VALUE,
    id_of,
    name_of,
    nested,
    raw_decimal,
    raw_flag,
    raw_text,
)


class _Parameters(Body, gc=False):
    """Of the parameters: the earlier response, and what a prompt has beside its messages."""

    previous_response_id: object = None


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
    request_duration_ms: msgspec.Raw = NO_VALUE
    response_time: msgspec.Raw = NO_VALUE
    model: object = None
    cache_hit: msgspec.Raw = NO_VALUE
    end_user: object = None
    user: object = None
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
_PARAMETERS: Final = msgspec.json.Decoder(_Parameters)


class _PayloadFile:
    def __init__(self, context: ReadContext) -> None:
        self.calls = LiteLlmFile(context)

    def rows(self, record: Record) -> list[Prompted]:
        """The request of one record.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        metadata = Metadata.of(raw.metadata)
        flags: list[str] = [] if metadata is not None else [UNREADABLE_FLAG]
        metadata = metadata or Metadata()
        is_stream = raw_flag(raw.stream)
        took_ns = _elapsed_ns("request_duration_ms", raw.request_duration_ms, flags, power=-3)
        responded_ns = _elapsed_ns("response_time", raw.response_time, flags, power=0)
        parameters = nested(_PARAMETERS, raw.model_parameters)
        call = Attempt(
            request_id=id_of(raw.id) or id_of(raw.request_id) or id_of(raw.litellm_call_id),
            session_id=id_of(raw.session_id),
            parent_id=None if parameters is None else id_of(parameters.previous_response_id),
            tenant=first_id(
                metadata.user_api_key_team_id,
                raw.team_id,
                metadata.user_api_key_hash,
                raw.api_key,
            ),
            user=user_of(
                raw.end_user,
                metadata.user_api_key_end_user_id,
                raw.user,
                metadata.user_api_key_user_id,
            ),
            llm=name_of(raw.model),
            call_type=name_of(raw.call_type),
            status=name_of(raw.status) or name_of(metadata.status),
            error_code=metadata.error_code(raw.error_information),
            is_cache_hit=raw_flag(raw.cache_hit) is True,
            is_stream=is_stream,
            started_at=raw_text(raw.startTime),
            first_at=raw_text(raw.completionStartTime),
            ended_at=raw_text(raw.endTime),
            duration_ns=took_ns or (responded_ns if is_stream is False else None),
            first_after_ns=responded_ns if is_stream else None,
            flags=tuple(flags),
            usage=metadata.usage(
                {name: getattr(raw, name) for name in COUNTS}, raw.hidden_params, raw.response
            ),
        )
        row = self.calls.row(record, call)
        return [self.calls.prompted(row, raw.messages, parameters, raw.proxy_server_request)]


def _elapsed_ns(name: str, value: msgspec.Raw, flags: list[str], *, power: int) -> int | None:
    """A duration; zero is what LiteLLM writes where it does not know."""
    return elapsed_ns(name, raw_decimal(name, value), flags, power=power) or None


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
        or {"request_id", "startTime", "spend"} <= set(item)
    )
