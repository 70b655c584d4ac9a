"""Exports of Helicone: JSON, JSON lines or CSV of its request table.

Names read from the types of Helicone's sources in 2025 (HeliconeRequest); `delay_ms` and
`time_to_first_token` are in ms. Nothing says whether prompt_tokens include the cached ones of every
provider. `cache_enabled` says that the cache was on, and `cache_reference_id` that it answered.
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
from kvtrace.ingest.families.gateways import GatewayFile, endpoint_of, status_of_code
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.cells import BadCellError, CsvTable, sniff_columns
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns
from kvtrace.ingest.values.rawvalues import NO_VALUE, decimal_of, nested, raw_text
from kvtrace.schema.manifest import Status

_REQUIRED: Final = ("request_created_at", "delay_ms")
_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "id": ("request_id", "response_id"),
    "user": ("request_user_id", "user_id"),
    "llm": ("response_model", "model", "request_model", "model_override"),
    "path": ("request_path", "path"),
    "start": ("request_created_at",),
    "delay": ("delay_ms",),
    "first": ("time_to_first_token",),
    "status": ("response_status", "status"),
    "prompt_tokens": ("prompt_tokens",),
    "completion_tokens": ("completion_tokens",),
    "total_tokens": ("total_tokens",),
    "cache_read_input_tokens": ("prompt_cache_read_tokens",),
    "cache_creation_input_tokens": ("prompt_cache_write_tokens",),
    "hit_of": ("cache_reference_id",),
    "session": ("session_id", "helicone_session_id", "helicone-session-id"),
}
"""What a column means, and its names in the exports; the first that is filled."""
_TOLD: Final = tuple(name for names in _SPELLINGS.values() for name in names)
_COUNTS: Final = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_BODY: Final = "request_body"
_PROPERTIES: Final = ("properties", "request_properties")
_NO_REFERENCE: Final = "00000000-0000-0000-0000-000000000000"
_NULLS: Final = ("", "-", "null", "NULL")
_CANCELLED: Final = -3
_MAX_STATUS_CHARS: Final = 6
_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MS: Final = -3


class _RequestFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def row_of_entry(self, record: Record, data: bytes) -> Prompted | Ignored:
        """The request of one JSON object.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        fields = decode_json(_DECODER, data)
        body = fields.pop(_BODY, NO_VALUE)
        told = {name: text for name in _TOLD if (text := raw_text(fields.get(name, NO_VALUE)))}
        for place in _PROPERTIES:
            properties = nested(_DECODER, fields.get(place, NO_VALUE)) or {}
            session = properties.get("Helicone-Session-Id", NO_VALUE)
            text = raw_text(session)
            if text is not None:
                told.setdefault("session_id", text)
        return self.gateway.bodies.prompted(self._row(record, told), body)

    def row_of_cells(self, record: Record, cell: dict[str, str]) -> Prompted:
        """The request of one CSV record.

        Raises:
            BadCellError: a cell is no time or no count.
        """
        try:
            row = self._row(record, cell)
        except msgspec.ValidationError as bad:
            raise BadCellError("invalid_field", str(bad)) from bad
        body = cell.get(_BODY, "") if self.gateway.bodies.is_on else ""
        return self.gateway.bodies.prompted(row, body.encode("utf-8", "surrogatepass"))

    def _row(self, record: Record, told: Mapping[str, str]) -> RequestRow:
        found = {name: _known(told, spellings) for name, spellings in _SPELLINGS.items()}
        flags: list[str] = []
        start, path = found["start"], found["path"]
        if start is None and found["prompt_tokens"] is None:
            raise msgspec.ValidationError("neither tokens nor the time of a request")
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=found["id"],
            session_id=found["session"],
            user=found["user"],
            llm=found["llm"],
            request_type=None if path is None else endpoint_of(path),
            arrived_at_ns=None
            if start is None
            else self.gateway.instants.text_ns("request_created_at", start, flags),
            e2e_ns=_milliseconds("delay_ms", found["delay"], flags),
            status=_status(found),
        )
        if row.status == "ok":
            first = found["first"]
            row.ttft_ns = _milliseconds("time_to_first_token", first, flags) or None
        usage = read_usage({name: found[name] for name in _COUNTS}, is_copied=True)
        return self.gateway.fill(row, usage, flags)

    def describe(self) -> None:
        """Clock, grade and notes of the file."""
        self.gateway.finish("request_created_at")


def _known(told: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((told[name] for name in names if told.get(name, "") not in _NULLS), None)


def _milliseconds(name: str, text: str | None, flags: list[str]) -> int | None:
    return None if text is None else elapsed_ns(name, decimal_of(name, text), flags, power=_MS)


def _status(found: Mapping[str, str | None]) -> Status:
    """The outcome: negative codes are Helicone's own, -3 for a cancelled request."""
    if found["hit_of"] not in (None, _NO_REFERENCE):
        return "gateway_cache_hit"
    text = found["status"]
    if text is None:
        return "ok"
    if not text.isascii() or not text.lstrip("-").isdigit() or len(text) > _MAX_STATUS_CHARS:
        return "ok" if text.lower() in ("success", "ok") else "error"
    code = int(text)
    if code < 0:
        return "cancelled" if code == _CANCELLED else "error"
    return status_of_code(code)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _RequestFile(context)
    answers = Answers(file.row_of_entry)
    yield from file.gateway.prompted_rows(records, answers.rows)
    answers.finish(context)
    file.describe()


def _read_csv(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    file = _RequestFile(context)
    rows = CsvTable(_REQUIRED, context).rows(records, file.row_of_cells)
    yield from file.gateway.with_blocks(rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    entries = list(entries_of(head.json_objects))
    ours = sum(set(_REQUIRED) <= set(item) for item in entries)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.35 * ours / len(entries),
        f"{ours} of {len(entries)} entries have request_created_at and delay_ms (Helicone)",
    )


def _sniff_csv(head: Head) -> Guess | None:
    return sniff_columns(head, _REQUIRED)


_SUPPLIES: Final = (
    "request_id",
    "session_id",
    "user",
    "llm",
    "request_type",
    "arrived_at_ns",
    "prompt_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "ttft_ns",
    "e2e_ns",
    "status",
    "block_keys",
)
_MISSING: Final = {
    "reuse": "request_body in the export: kvtrace makes block keys of the prompts; or the engines'"
    " KV events (--kv-events-config)",
    "cached_tokens": "the engine must report it: vLLM --enable-prompt-tokens-details",
    "ttft": "streamed calls only; the engine's spans (vLLM: --otlp-traces-endpoint)",
    "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
    "sessions": "a header Helicone-Session-Id on the requests",
}
_VERSIONS: Final = "Helicone of 2025: HeliconeRequest of its sources; session column of CSV assumed"
_HINT: Final = (
    "Requests, Export (or POST /v1/request/query-clickhouse); with bodies for reuse: prompts become"
    " keyed hashes"
)

FORMATS: tuple[Format, ...] = (
    Format(
        name="helicone",
        title="Helicone request export (JSON or JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=_SUPPLIES,
        missing=_MISSING,
        versions=_VERSIONS,
        sniff=_sniff,
        read=_read,
        enable_hint=_HINT,
        max_record_bytes=MAX_ANSWER_BYTES,
    ),
    Format(
        name="helicone_csv",
        title="Helicone request export (CSV)",
        framing="csv",
        best_grade="A",
        supplies=_SUPPLIES,
        missing=_MISSING,
        versions=_VERSIONS,
        sniff=_sniff_csv,
        read=_read_csv,
        enable_hint=_HINT,
    ),
)
