"""LiteLLM_SpendLogs as CSV out of Postgres: JSON in quoted cells, times in UTC without a zone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Guess, Head, ReadContext, Record, RequestRow
from kvtrace.ingest.formats.litellm.attempts import Attempt, LiteLlmFile
from kvtrace.ingest.formats.litellm.payload import tenant_of
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.values.cells import BadCellError, CsvTable, sniff_columns
from kvtrace.ingest.values.jsonfields import decode_json

_REQUIRED: Final = ("request_id", "startTime", "spend")
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
_PROMPTS: Final = ("messages", "proxy_server_request")
_NULLS: Final = ("", "NULL", "null", "\\N")


class _Error(msgspec.Struct, gc=False):
    error_code: str | int | None = None


class _Metadata(msgspec.Struct, gc=False):
    additional_usage_values: dict[str, object] | None = None
    usage_object: dict[str, object] | None = None
    status: str | None = None
    error_information: _Error | None = None


_METADATA: Final = msgspec.json.Decoder(_Metadata)


class _SpendFile:
    def __init__(self, context: ReadContext) -> None:
        self.calls = LiteLlmFile(context)

    def row(self, record: Record, cell: dict[str, str]) -> Prompted:
        """The request of one record.

        Raises:
            BadCellError: a cell is no time or no count.
        """
        known = {name: text for name, text in cell.items() if text not in _NULLS}
        metadata = _metadata(known.get("metadata"))
        usage = dict(metadata.usage_object or metadata.additional_usage_values or {})
        usage.update({name: known[name] for name in _COUNTS if name in known})
        code = None if metadata.error_information is None else metadata.error_information.error_code
        call = Attempt(
            request_id=known.get("request_id"),
            session_id=known.get("session_id"),
            tenant=tenant_of(known.get("team_id"), known.get("api_key"), known.get("end_user")),
            llm=known.get("model"),
            call_type=known.get("call_type"),
            status=known.get("status") or metadata.status,
            error_code=None if code is None else str(code),
            is_cache_hit=known.get("cache_hit", "").lower() in ("true", "t"),
            is_stream=None,
            started_at=known.get("startTime"),
            first_at=known.get("completionStartTime"),
            ended_at=known.get("endTime"),
            usage=usage,
        )
        try:
            row = self.calls.row(record, call)
        except msgspec.ValidationError as bad:
            raise BadCellError("invalid_field", str(bad)) from bad
        messages, request = (_json_cell(known, name) for name in _PROMPTS)
        return self.calls.prompted(row, messages, None, request)


def _json_cell(known: dict[str, str], name: str) -> bytes:
    return known.get(name, "").encode("utf-8", "surrogatepass")


def _metadata(text: str | None) -> _Metadata:
    """The metadata cell; nothing where it is no JSON."""
    if text is None:
        return _Metadata()
    try:
        return decode_json(_METADATA, text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Metadata()


def read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    """The calls of a CSV file."""
    file = _SpendFile(context)
    rows = CsvTable(_REQUIRED, context).rows(records, file.row)
    yield from file.calls.with_blocks(rows)
    file.calls.describe()


def sniff(head: Head) -> Guess | None:
    """A CSV header with request_id, startTime and spend."""
    return sniff_columns(head, _REQUIRED)
