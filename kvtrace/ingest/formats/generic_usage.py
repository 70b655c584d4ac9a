"""JSON lines of nobody in particular: a time and token counts under names that anyone would give.

Only names whose meaning is plain are read; whatever else stands in a row is stepped over. A log
with other names is read by a mapping file (`--mapping`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.gateways import GatewayFile
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, json_record_rows
from kvtrace.ingest.values.rawvalues import id_of, name_of, raw_decimal, raw_text

_TIMES: Final = (
    "ts",
    "timestamp",
    "time",
    "start_time",
    "started_at",
    "arrival_time",
    "created_at",
)
_IDS: Final = ("request_id", "req_id", "x_request_id", "id")
_SESSIONS: Final = ("session_id", "conversation_id", "session")
_MODELS: Final = ("model", "model_name", "llm")
_DURATIONS: Final = {
    # name: (column, power of ten to seconds)
    "ttft_ms": ("ttft_ns", -3),
    "ttft_s": ("ttft_ns", 0),
    "latency_ms": ("e2e_ns", -3),
    "duration_ms": ("e2e_ns", -3),
    "e2e_ms": ("e2e_ns", -3),
    "latency_s": ("e2e_ns", 0),
    "duration_s": ("e2e_ns", 0),
    "e2e_s": ("e2e_ns", 0),
    "queue_ms": ("queue_ns", -3),
    "queue_s": ("queue_ns", 0),
}
_COUNTS: Final = (
    "prompt_tokens",
    "input_tokens",
    "completion_tokens",
    "output_tokens",
    "total_tokens",
    "cached_tokens",
    "prompt_tokens_details",
    "input_tokens_details",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "prompt_cache_hit_tokens",
    "prompt_cache_miss_tokens",
)
_PROMPTS: Final = ("prompt_tokens", "input_tokens")
_BESIDE: Final = frozenset({"unit", "status", "user", "user_id", "stream"})
_KNOWN: Final = frozenset((*_TIMES, *_IDS, *_SESSIONS, *_MODELS, *_DURATIONS, *_COUNTS, *_BESIDE))
_ROW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL: Final = msgspec.Raw(b"null")
_MIN_CONFIDENCE: Final = 0.5


def _first(row: Mapping[str, msgspec.Raw], names: Iterable[str]) -> tuple[str, msgspec.Raw] | None:
    found = ((name, row[name]) for name in names if name in row)
    return next(((name, raw) for name, raw in found if raw_text(raw) is not None), None)


def _text(row: Mapping[str, msgspec.Raw], names: Iterable[str]) -> str | None:
    found = _first(row, names)
    return None if found is None else raw_text(found[1])


class _GenericFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one line.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        fields = decode_json(_ROW, record.data)
        counted: dict[str, object] = {
            name: msgspec.json.decode(fields[name]) for name in _COUNTS if name in fields
        }
        time = _first(fields, _TIMES)
        if time is None and not counted:
            return Ignored("without_usage")
        usage = read_usage(counted) if counted else None
        if counted and usage is None:
            raise msgspec.ValidationError("no prompt or output count of a known name")
        flags: list[str] = []
        instants = self.gateway.instants
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(_text(fields, _IDS)),
            session_id=id_of(_text(fields, _SESSIONS)),
            llm=name_of(_text(fields, _MODELS)),
            arrived_at_ns=None if time is None else instants.raw_ns(*time, flags),
        )
        for name, (column, power) in _DURATIONS.items():
            number = raw_decimal(name, fields.get(name, _NULL))
            if number is not None and getattr(row, column) is None:
                setattr(row, column, elapsed_ns(name, number, flags, power=power))
        return [self.gateway.fill(row, usage, flags)]


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _GenericFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("time of the row")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours * 2 <= len(objects):
        return None
    return Guess(
        _MIN_CONFIDENCE + 0.05 * ours / len(objects),
        f"{ours} of {len(objects)} rows have a time and token counts under plain names",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    """Whether a row says a prompt length, or nothing but things of known names with a time.

    Other objects with a time may be any program's log.
    """
    has_time = any(name in item for name in _TIMES)
    if any(isinstance(item.get(name), int | str) for name in _PROMPTS):
        return has_time or any(name in item for name in _IDS)
    return has_time and item.keys() <= _KNOWN


FORMATS: tuple[Format, ...] = (
    Format(
        name="generic_usage",
        title="JSON lines with a time and token counts under plain names",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "queue_ns",
            "ttft_ns",
            "e2e_ns",
        ),
        missing={
            "reuse": "block identity: the engines' KV events (--kv-events-config), or token ids or"
            " block hashes in each row, read by --mapping",
            "cached_tokens": "cached_tokens in each row (vLLM: --enable-prompt-tokens-details)",
            "arrivals": "ts in each row, as epoch or as a date with its zone",
            "ttft": "ttft_ms in each row",
            "e2e": "latency_ms in each row",
            "sessions": "session_id in each row",
        },
        versions=f"rows with any of: {', '.join((*_TIMES, *_COUNTS[:6]))}",
        sniff=_sniff,
        read=_read,
        enable_hint='write {"ts": …, "request_id": …, "session_id": …, "prompt_tokens": …,'
        ' "cached_tokens": …, "completion_tokens": …, "ttft_ms": …} for every request; other'
        " names: --mapping FILE",
    ),
)
