"""Workloads of AIBrix's benchmarks: JSON lines, the requests of one moment each.

Shape read from vllm-project/aibrix (`benchmarks/generator`): `{"timestamp": ms, "requests": […]}`
with `Prompt Length` and `Output Length` (releases 0.1 to 0.2) or `prompt_length`, `output_length`
and `session_id` (0.3 and later), and the `prompt` itself. Times count from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.prompts import Prompt
from kvtrace.ingest.prompts.rows import Prompted, prompted_rows
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    count_of,
    decode_json,
    flag_lengths,
    instant_ns,
)
from kvtrace.ingest.values.rawvalues import id_of, name_of

_MS: Final = -3
_LENGTHS: Final = frozenset({"Prompt Length", "prompt_length", "prompt"})


class _Request(msgspec.Struct, gc=False):
    prompt: msgspec.Raw = msgspec.Raw(b"")
    old_prompt_length: int | None = msgspec.field(default=None, name="Prompt Length")
    old_output_length: int | None = msgspec.field(default=None, name="Output Length")
    prompt_length: int | None = None
    output_length: int | None = None
    session_id: str | int | None = None
    model: str | None = None


class _Moment(msgspec.Struct, gc=False):
    timestamp: Decimal
    requests: list[_Request]


_DECODER: Final = msgspec.json.Decoder(_Moment)
_TEXT: Final = msgspec.json.Decoder(str)


class _Workload:
    def __init__(self, context: ReadContext) -> None:
        self._context = context

    def rows(self, record: Record) -> list[Prompted] | Ignored:
        """The requests of one moment.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        moment = decode_json(_DECODER, record.data)
        if not moment.requests:
            return Ignored("no_requests")
        arrived_at_ns = instant_ns("timestamp", moment.timestamp, self._context, power=_MS)
        if arrived_at_ns is not None and arrived_at_ns < 0:
            raise msgspec.ValidationError("`timestamp` is negative")
        return [self._request(record, raw, arrived_at_ns) for raw in moment.requests]

    def _request(self, record: Record, raw: _Request, arrived_at_ns: int | None) -> Prompted:
        length = raw.prompt_length if raw.prompt_length is not None else raw.old_prompt_length
        output = raw.output_length if raw.output_length is not None else raw.old_output_length
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            session_id=id_of(raw.session_id),
            llm=name_of(raw.model),
            arrived_at_ns=arrived_at_ns,
            prompt_tokens=count_of("prompt_length", length),
            output_tokens=count_of("output_length", output),
        )
        flag_lengths(row)
        prompt = bytes(raw.prompt)
        text = _TEXT.decode(prompt) if prompt[:1] == b'"' else ""
        return row, Prompt(text.encode("utf-8", "surrogatepass")) if text else None


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    context.clock = "relative"
    context.clock_reason = "timestamp counts milliseconds from the start of the workload"
    yield from prompted_rows(records, context, _Workload(context).rows)


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum("timestamp" in entry and _holds_requests(entry) for entry in objects)
    if not ours or 2 * ours < len(objects):
        return None
    return Guess(0.93, f"{ours} of {len(objects)} objects have timestamp and a list of requests")


def _holds_requests(entry: dict[str, object]) -> bool:
    requests = entry.get("requests")
    if not isinstance(requests, list):
        return False
    return all(isinstance(item, dict) and _LENGTHS & item.keys() for item in requests)


FORMATS: tuple[Format, ...] = (
    Format(
        name="aibrix_trace",
        title="AIBrix benchmark workload (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "session_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "block_keys",
        ),
        missing={
            "production": "logs of your own service",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
            "reuse": "the prompts themselves: keep them in the workload",
        },
        versions="vllm-project/aibrix benchmarks/generator 0.1 to 0.5",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="`python benchmark.py --stage workload` of AIBrix",
    ),
)
