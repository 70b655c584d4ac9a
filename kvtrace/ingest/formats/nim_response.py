"""Responses of NVIDIA NIM with their statistics: JSON lines of completions that carry `stats`.

Responses read as NVIDIA documents them for NIM for LLMs (stats version 0.1.0, experimental,
`NIM_PER_REQ_METRICS_ENABLE=1`): `llm_input_token_length`, `llm_output_token_length`,
`time_in_queue_in_ms`, `generation_time_in_ms`, and under `response_tokens` the times of tokens.
The same counts may stand in `usage`. Choices, which hold the text, are stepped over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    count_of,
    decode_json,
    elapsed_ns,
    flag_lengths,
    instant_ns,
    json_record_rows,
    keys_of,
)

_MS: Final = -3


class _ResponseTokens(msgspec.Struct, gc=False):
    response_token_length: int | None = None
    time_to_first_token_in_ms: Decimal | None = None
    token_to_token_time_in_ms: Decimal | None = None


class _Stats(msgspec.Struct, gc=False):
    llm_input_token_length: int | None = None
    llm_output_token_length: int | None = None
    time_in_queue_in_ms: Decimal | None = None
    response_tokens: _ResponseTokens | None = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | int | None = None
    model: str | None = None
    created: Decimal | None = None
    usage: _Usage | None = None
    stats: _Stats | None = None


_DECODER: Final = msgspec.json.Decoder(_Response, strict=False)


class _ResponseFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one response; chunks of a stream before the last have no statistics.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        if raw.stats is None:
            return Ignored("without_stats")
        if raw.stats.llm_input_token_length is None and raw.stats.llm_output_token_length is None:
            raise msgspec.ValidationError("`stats` without a token length")
        return [self._row(record, raw, raw.stats)]

    def _row(self, record: Record, raw: _Response, stats: _Stats) -> RequestRow:
        usage = raw.usage or _Usage()
        details = usage.prompt_tokens_details or _PromptDetails()
        tokens = stats.response_tokens or _ResponseTokens()
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=None if raw.id is None else str(raw.id),
            llm=raw.model,
            arrived_at_ns=instant_ns("created", raw.created, self._context),
            prompt_tokens=count_of(
                "llm_input_token_length",
                _first(stats.llm_input_token_length, usage.prompt_tokens),
            ),
            cached_tokens=count_of("cached_tokens", details.cached_tokens),
            output_tokens=count_of(
                "llm_output_token_length",
                _first(
                    stats.llm_output_token_length,
                    tokens.response_token_length,
                    usage.completion_tokens,
                ),
            ),
            queue_ns=elapsed_ns("queue", stats.time_in_queue_in_ms, flags, power=_MS),
            ttft_ns=elapsed_ns("ttft", tokens.time_to_first_token_in_ms, flags, power=_MS),
            tpot_ns=elapsed_ns("tpot", tokens.token_to_token_time_in_ms, flags, power=_MS),
        )
        row.ttft_from = None if row.ttft_ns is None else "arrival"
        row.flags = tuple(flags)
        flag_lengths(row)
        return row


def _first(*counts: int | None) -> int | None:
    """The first count that is known."""
    return next((count for count in counts if count is not None), None)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    context.engine = "nim"
    yield from json_record_rows(records, context.tally, _ResponseFile(context).rows)
    if context.clock_resolution_ns is not None:
        context.clock = "utc"
        context.clock_reason = "created is in epoch seconds"
        context.note(
            "arrival_from_created",
            "Arrival is the response's `created`, a second of the server's clock when it began to"
            " handle the request.",
        )


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum("llm_input_token_length" in keys_of(item.get("stats")) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.7 + 0.25 * ours / len(objects),
        f"{ours} of {len(objects)} responses have NIM's stats (llm_input_token_length)",
    )


FORMATS: tuple[Format, ...] = (
    Format(
        name="nim_response",
        title="NVIDIA NIM responses with stats (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "queue_ns",
            "ttft_ns",
            "tpot_ns",
        ),
        missing={
            "cached_tokens": "NIM's engine must report them:"
            " NIM_ENABLE_KV_CACHE_REUSE=1, and usage.prompt_tokens_details in the response",
            "reuse": "block identity, which NIM does not write; hash prompt blocks in the gateway",
            "e2e": "the access log of the gateway in front",
        },
        versions="NIM for LLMs 1.x, stats version 0.1.0 as documented (not read from sources)",
        sniff=_sniff,
        read=_read,
        enable_hint="NIM_PER_REQ_METRICS_ENABLE=1 in the container; have the gateway write the"
        " responses without their choices as JSON lines",
    ),
)
