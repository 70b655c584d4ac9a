"""llmperf's `*_individual_responses.json`: an array, one object a request.

Shape read from the sources of llmperf (ray-project, 2023 to 2024). Times are seconds without a
clock; prompts are counted with a Llama tokenizer whatever the model. Failed requests hold zeros,
which say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    between_ns,
    count_of,
    decode_json,
    elapsed_ns,
    flag_lengths,
    json_record_rows,
    mean_per_token_ns,
)

_REQUIRED: Final = frozenset({"end_to_end_latency_s", "number_input_tokens"})


class _Response(msgspec.Struct, gc=False):
    ttft_s: Decimal | None = None
    end_to_end_latency_s: Decimal | None = None
    number_input_tokens: int | None = None
    number_output_tokens: int | None = None
    error_code: msgspec.Raw = msgspec.Raw(b"null")


_DECODER: Final = msgspec.json.Decoder(_Response, strict=False)
_NO_ERROR: Final = (b"null", b'""')


def _rows(record: Record) -> list[Row] | Ignored:
    """The request of one entry.

    Raises:
        msgspec.DecodeError: not JSON, or a field is of the wrong type or range.
    """
    told = decode_json(_DECODER, record.data)
    if told.end_to_end_latency_s is None and told.number_input_tokens is None:
        raise msgspec.ValidationError("neither `end_to_end_latency_s` nor `number_input_tokens`")
    row = RequestRow(offset=record.offset, line=record.line, is_benchmark=True)
    if bytes(told.error_code) not in _NO_ERROR:
        row.status = "error"
        return [row]
    flags: list[str] = []
    row.prompt_tokens = count_of("number_input_tokens", told.number_input_tokens)
    row.output_tokens = count_of("number_output_tokens", told.number_output_tokens)
    # 0 is what a time holds until it is measured
    row.ttft_ns = elapsed_ns("ttft", told.ttft_s or None, flags)
    row.ttft_from = None if row.ttft_ns is None else "client"
    row.e2e_ns = elapsed_ns("e2e", told.end_to_end_latency_s or None, flags)
    row.tpot_ns = mean_per_token_ns(between_ns(row.ttft_ns, row.e2e_ns, flags), row.output_tokens)
    row.flags = tuple(flags)
    flag_lengths(row)
    return [row]


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    yield from json_record_rows(records, context.tally, _rows)
    context.clock_reason = "llmperf writes no arrival times: order of requests only"
    if context.tally.used:
        context.note(
            "client_token_counts",
            "Lengths are counted by the client with a Llama tokenizer, whatever the model, and"
            " differ from the server's.",
        )


def _sniff(head: Head) -> Guess | None:
    ours = sum(item.keys() >= _REQUIRED for item in head.json_objects)
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.95, f"{ours} requests of llmperf (end_to_end_latency_s)")
    return None


FORMATS: tuple[Format, ...] = (
    Format(
        name="llmperf",
        title="llmperf individual responses (JSON)",
        framing="json",
        best_grade="L",
        supplies=("prompt_tokens", "output_tokens", "ttft_ns", "tpot_ns", "e2e_ns", "status"),
        missing={
            "production": "the engine's own log of real requests",
            "arrivals": "another client (AIPerf, guidellm), or the engine's log of the same time",
            "cached_tokens": "another client, and on the server vLLM"
            " --enable-prompt-tokens-details",
            "reuse": "the engine's block events",
            "queue": "the engine's log of the same time",
        },
        versions="llmperf of ray-project (2023 to 2024, archived)",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="python token_benchmark_ray.py … --results-dir DIR",
    ),
)
