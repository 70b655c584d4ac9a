"""Generations of OpenRouter (`GET /api/v1/generation`), one answer a line.

Read from OpenRouter's API documents: `native_tokens_*` are the counts of the model; `tokens_*` are
made with one tokenizer for all models and not used. `latency` is documented as the total and may be
the time to first token: neither is stored.
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
from kvtrace.ingest.families.gateways import GatewayFile
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, json_record_rows
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, raw_flag


class _Generation(msgspec.Struct, gc=False):
    id: object = None
    session_id: object = None
    model: object = None
    created_at: msgspec.Raw = NO_VALUE
    cancelled: msgspec.Raw = NO_VALUE
    finish_reason: object = None
    latency: msgspec.Raw = NO_VALUE
    native_tokens_prompt: object = None
    native_tokens_completion: object = None
    native_tokens_cached: object = None


_DECODER: Final = msgspec.json.Decoder(_Generation)


class _GenerationFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def row(self, record: Record, data: bytes) -> Row | Ignored:
        """The request of one generation.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, data)
        flags: list[str] = []
        usage = read_usage(
            {
                "prompt_tokens": raw.native_tokens_prompt,
                "completion_tokens": raw.native_tokens_completion,
                "cached_tokens": raw.native_tokens_cached,
            }
        )
        created = self.gateway.instants.raw_ns("created_at", raw.created_at, flags)
        if created is None and (usage is None or usage.prompt_tokens is None):
            raise msgspec.ValidationError("neither tokens nor the time of a generation")
        is_failed = name_of(raw.finish_reason) == "error"
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.id),
            session_id=id_of(raw.session_id),
            llm=name_of(raw.model),
            arrived_at_ns=created,
            status="cancelled" if raw_flag(raw.cancelled) else "error" if is_failed else "ok",
        )
        return self.gateway.fill(row, usage, flags)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _GenerationFile(context)
    answers: Answers[Row] = Answers(file.row)
    yield from json_record_rows(records, context.tally, answers.rows)
    answers.finish(context)
    file.gateway.finish("created_at")
    context.note(
        "latency_unverified",
        "OpenRouter's `latency` is documented as the total time and may be the time to first token:"
        " it is used as neither.",
    )


def _sniff(head: Head) -> Guess | None:
    entries = list(entries_of(head.json_objects))
    ours = sum(_is_ours(item) for item in entries)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(entries),
        f"{ours} of {len(entries)} entries have native_tokens_prompt (OpenRouter)",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return "native_tokens_prompt" in item


FORMATS: tuple[Format, ...] = (
    Format(
        name="openrouter",
        title="OpenRouter generations (JSON or JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "status",
        ),
        missing={
            "reuse": "block identity, which OpenRouter does not have; hash the prompts in your own"
            " gateway",
            "ttft": "measure it in the client or in your own gateway",
            "e2e": "measure it in the client or in your own gateway",
            "queue": "not visible through OpenRouter",
            "sessions": "a session_id in the requests",
        },
        versions="OpenRouter API v1, /generation as documented",
        sniff=_sniff,
        read=_read,
        enable_hint='curl -H "Authorization: Bearer $KEY"'
        " 'https://openrouter.ai/api/v1/generation?id=gen-…' >> generations.jsonl for every id",
        max_record_bytes=MAX_ANSWER_BYTES,
    ),
)
