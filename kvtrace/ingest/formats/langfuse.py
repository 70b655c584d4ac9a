"""Observations of Langfuse, from its API or its exports: generations alone are calls to a model.

Read from langfuse 5.0.4 and its API (v1, v2, blob exports with snake case). `usageDetails.input` is
meant to leave the cached tokens out; many producers write the inclusive number, and the total
tells. Old exports have `usage` with a unit: CHARACTERS and the like are refused. Integrations that
do not stream write the end as completionStartTime: the time to first token is then unknown.
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
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.usage import TokenUsage, read_buckets, read_usage
from kvtrace.ingest.values.jsonfields import Ignored, between_ns, decode_json
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_text

_TYPES: Final = (
    "SPAN",
    "EVENT",
    "AGENT",
    "TOOL",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "EMBEDDING",
    "GUARDRAIL",
)


class _Observation(msgspec.Struct, gc=False):
    id: object = None
    type: object = None
    startTime: msgspec.Raw = NO_VALUE
    start_time: msgspec.Raw = NO_VALUE
    endTime: msgspec.Raw = NO_VALUE
    end_time: msgspec.Raw = NO_VALUE
    completionStartTime: msgspec.Raw = NO_VALUE
    completion_start_time: msgspec.Raw = NO_VALUE
    model: object = None
    providedModelName: object = None
    provided_model_name: object = None
    usageDetails: msgspec.Raw = NO_VALUE
    usage_details: msgspec.Raw = NO_VALUE
    usage: msgspec.Raw = NO_VALUE
    level: object = None
    sessionId: object = None
    session_id: object = None
    userId: object = None
    user_id: object = None
    input: msgspec.Raw = NO_VALUE


_DECODER: Final = msgspec.json.Decoder(_Observation)
_COUNTS: Final = msgspec.json.Decoder(dict[str, object])


class _ObservationFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def row(self, record: Record, data: bytes) -> Prompted | Ignored:
        """The request of one observation.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, data)
        kind = name_of(raw.type)
        if kind is not None and kind.upper() != "GENERATION":
            known = kind.upper() if kind.upper() in _TYPES else "other"
            return Ignored(f"observation_{known.lower()}")
        flags: list[str] = []
        start = self._instant("startTime", raw.startTime, raw.start_time, flags)
        end = self._instant("endTime", raw.endTime, raw.end_time, flags)
        first = self._instant(
            "completionStartTime", raw.completionStartTime, raw.completion_start_time, flags
        )
        usage = _usage(raw)
        if start is None and usage is None:
            raise msgspec.ValidationError("neither tokens nor times of a generation")
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.id),
            session_id=id_of(raw.sessionId) or id_of(raw.session_id),
            user=id_of(raw.userId) or id_of(raw.user_id),
            llm=name_of(raw.model)
            or name_of(raw.providedModelName)
            or name_of(raw.provided_model_name),
            arrived_at_ns=start,
            ttft_ns=None if first == end else between_ns(start, first, flags),
            e2e_ns=between_ns(start, end, flags),
            status="error" if name_of(raw.level) == "ERROR" else "ok",
        )
        return self.gateway.bodies.prompted(self.gateway.fill(row, usage, flags), raw.input)

    def _instant(
        self, name: str, camel: msgspec.Raw, snake: msgspec.Raw, flags: list[str]
    ) -> int | None:
        value = snake if raw_text(camel) is None else camel
        return self.gateway.instants.raw_ns(name, value, flags)


def _usage(raw: _Observation) -> TokenUsage | None:
    """The counts of usageDetails, else of the old `usage`; both only if the unit is tokens.

    Servers return both maps with the same numbers, and only the old one says the unit.
    """
    old = nested(_COUNTS, raw.usage) or {}
    unit = old.get("unit")
    if isinstance(unit, str) and unit.upper() != "TOKENS":
        raise msgspec.ValidationError("`usage.unit` is not TOKENS")
    details = nested(_COUNTS, raw.usageDetails) or nested(_COUNTS, raw.usage_details)
    if details:
        return read_buckets(details)
    counts = {
        "input_tokens": _first(old, "input", "promptTokens"),
        "output_tokens": _first(old, "output", "completionTokens"),
        "total_tokens": _first(old, "total", "totalTokens"),
    }
    return read_usage(counts) if any(value is not None for value in counts.values()) else None


def _first(counts: Mapping[str, object], *names: str) -> object:
    return next((counts[name] for name in names if counts.get(name) is not None), None)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ObservationFile(context)
    answers = Answers(file.row)
    yield from file.gateway.prompted_rows(records, answers.rows)
    answers.finish(context)
    file.gateway.finish("startTime")


def _sniff(head: Head) -> Guess | None:
    entries = list(entries_of(head.json_objects))
    ours = sum(_is_ours(item) for item in entries)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(entries),
        f"{ours} of {len(entries)} entries are observations of Langfuse",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    keys = set(item)
    if {"usageDetails", "startTime"} <= keys or {"usage_details", "start_time"} <= keys:
        return True
    return {"startTime", "type", "usage", "level"} <= keys and bool({"traceId", "id"} & keys)


FORMATS: tuple[Format, ...] = (
    Format(
        name="langfuse",
        title="Langfuse observations (JSON or JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "user",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "ttft_ns",
            "e2e_ns",
            "status",
            "block_keys",
        ),
        missing={
            "reuse": "the field io (v2) or inputs in the export: kvtrace makes block keys of them",
            "cached_tokens": "usageDetails with input_cached_tokens from the instrumentation, and"
            " an engine that reports it (vLLM --enable-prompt-tokens-details)",
            "ttft": "completionStartTime from the instrumentation",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "session_id on the traces (propagate_attributes(session_id=…))",
        },
        versions="langfuse 5.0.4, API v1 and v2, blob exports",
        sniff=_sniff,
        read=_read,
        enable_hint="GET /api/public/v2/observations?type=GENERATION&fields=core,basic,time,usage,"
        "model (and io for reuse: prompts become keyed hashes), or a blob storage export of"
        " observations as JSONL",
        max_record_bytes=MAX_ANSWER_BYTES,
    ),
)
