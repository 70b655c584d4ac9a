"""LiteLLM_SpendLogs as CSV out of Postgres: JSON in quoted cells, times in UTC without a zone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Guess, Head, ReadContext, Record, RequestRow
from kvtrace.ingest.formats.litellm.attempts import UNREADABLE_FLAG, Attempt, LiteLlmFile
from kvtrace.ingest.formats.litellm.metadata import COUNTS, Metadata, first_id, user_of
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.values.cells import BadCellError, CsvTable, sniff_columns
from kvtrace.ingest.values.jsonfields import elapsed_ns
from kvtrace.ingest.values.rawvalues import decimal_of, flag_of, name_of

_REQUIRED: Final = ("request_id", "startTime", "spend")
_PROMPTS: Final = ("messages", "proxy_server_request")
_NULLS: Final = ("", "NULL", "null", "\\N")


class _SpendFile:
    def __init__(self, context: ReadContext) -> None:
        self.calls = LiteLlmFile(context)

    def row(self, record: Record, cell: dict[str, str]) -> Prompted:
        """The request of one record.

        Raises:
            BadCellError: a cell is no time or no count.
        """
        known = {name: text for name, text in cell.items() if text not in _NULLS}
        metadata = Metadata.of(_json_cell(known, "metadata"))
        flags: list[str] = [] if metadata is not None else [UNREADABLE_FLAG]
        metadata = metadata or Metadata()
        try:
            call = _attempt(known, metadata, flags)
            row = self.calls.row(record, call)
        except msgspec.ValidationError as bad:
            raise BadCellError("invalid_field", str(bad)) from bad
        messages, request = (_json_cell(known, name) for name in _PROMPTS)
        return self.calls.prompted(row, messages, None, request)


def _attempt(known: dict[str, str], metadata: Metadata, flags: list[str]) -> Attempt:
    """The call of a record; more odd things are added to the flags.

    Raises:
        msgspec.ValidationError: a cell is no count or no duration.
    """
    took = known.get("request_duration_ms")
    took_ms = None if took is None else decimal_of("request_duration_ms", took)
    duration_ns = elapsed_ns("request_duration_ms", took_ms, flags, power=-3)
    counts = {name: known.get(name) for name in COUNTS}
    return Attempt(
        request_id=known.get("request_id"),
        session_id=known.get("session_id"),
        tenant=first_id(known.get("team_id"), known.get("api_key")),
        user=user_of(known.get("end_user"), known.get("user")),
        llm=known.get("model"),
        call_type=known.get("call_type"),
        status=known.get("status") or name_of(metadata.status),
        error_code=metadata.error_code(),
        is_cache_hit=flag_of(known.get("cache_hit", "")) is True,
        is_stream=None,
        started_at=known.get("startTime"),
        first_at=known.get("completionStartTime"),
        ended_at=known.get("endTime"),
        duration_ns=duration_ns or None,
        flags=tuple(flags),
        usage=metadata.usage(counts, _json_cell(known, "response")),
    )


def _json_cell(known: dict[str, str], name: str) -> msgspec.Raw:
    return msgspec.Raw(known.get(name, "").encode("utf-8", "surrogatepass").strip())


def read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    """The calls of a CSV file."""
    file = _SpendFile(context)
    rows = CsvTable(_REQUIRED, context).rows(records, file.row)
    yield from file.calls.with_blocks(rows)
    file.calls.describe()


def sniff(head: Head) -> Guess | None:
    """A CSV header with request_id, startTime and spend."""
    return sniff_columns(head, _REQUIRED)
