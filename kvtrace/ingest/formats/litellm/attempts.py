"""One call of LiteLLM to a model, whichever of its logs it stands in, as a request row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kvtrace.ingest.contract import ReadContext, Record, RequestRow
from kvtrace.ingest.families.gateways import GatewayFile
from kvtrace.ingest.prompts.bodies import Body
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.jsonfields import between_ns
from kvtrace.schema.manifest import Status
from kvtrace.units import NS_PER_MS

_FAILURES: Final = ("failure", "failed", "error")
UNREADABLE_FLAG: Final = "metadata_unreadable"
"""The metadata, which may hold cached counts and the outcome, is no JSON object."""
_CACHE_HIT: Final = re.compile(r"_cache_hit[0-9.]*\Z", re.ASCII)
"""End of the ids that LiteLLM gives to answers of its own cache."""
_SAME_NS: Final = NS_PER_MS
"""Resolution of LiteLLM's spend logs."""
_CLIENT_CLOSED: Final = "499"
_CALL_TYPE: Final = re.compile(r"[a-z][a-z_]{0,39}", re.ASCII)
_WATCHED_SESSIONS: Final = 10_000
_FEWEST_SESSIONS: Final = 20


class Attempt(msgspec.Struct, gc=False, kw_only=True):
    """What both logs say of a call; retries and fallbacks are calls of their own."""

    request_id: str | None
    session_id: str | None
    parent_id: str | None = None
    tenant: str | None
    user: str | None
    llm: str | None
    call_type: str | None
    status: str | None
    error_code: str | None = None
    is_cache_hit: bool
    is_stream: bool | None
    """None: the log does not say."""
    started_at: str | None
    first_at: str | None
    ended_at: str | None
    duration_ns: int | None = None
    """Stands in for a missing end."""
    first_after_ns: int | None = None
    """Stands in for a missing first token: `response_time` of streams ends at it."""
    flags: tuple[str, ...] = ()
    usage: Mapping[str, object]


class LiteLlmFile(GatewayFile):
    """The calls of one file."""

    def __init__(self, context: ReadContext) -> None:
        super().__init__(context)
        self._sessions: set[str] = set()
        self._session_rows = 0

    def row(self, record: Record, call: Attempt) -> RequestRow:
        """The request row of a call.

        Raises:
            msgspec.ValidationError: a time or count is none, or there is neither.
        """
        flags = list(call.flags)
        start = self._instant("startTime", call.started_at, flags)
        end = self._instant("endTime", call.ended_at, flags)
        first = self._instant("completionStartTime", call.first_at, flags)
        if end is None and start is not None and call.duration_ns is not None:
            end = start + call.duration_ns
        elif start is None and end is not None and call.duration_ns is not None:
            start = end - call.duration_ns
        status = _status(call)
        if start is None and not call.usage:
            raise msgspec.ValidationError("neither tokens nor times of a call")
        has_first = status == "ok" and not _is_end(first, end, call.is_stream)
        ttft_ns = call.first_after_ns if None in (start, first) else between_ns(start, first, flags)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=call.request_id,
            session_id=call.session_id,
            parent_id=call.parent_id,
            tenant=call.tenant,
            user=call.user,
            llm=call.llm,
            request_type=_call_type(call.call_type),
            arrived_at_ns=start,
            ttft_ns=ttft_ns if has_first else None,
            e2e_ns=call.duration_ns if start is None else between_ns(start, end, flags),
            status=status,
        )
        self._watch(call.session_id)
        return self.fill(row, read_usage(call.usage), flags)

    def prompted(
        self,
        row: RequestRow,
        messages: bytes | msgspec.Raw,
        parameters: Body | None,
        request: bytes | msgspec.Raw,
    ) -> Prompted:
        """The row with the prompt of the call: the messages, else the request to the proxy.

        Tools and a system prompt of its own (Anthropic's API) stand among the parameters.
        """
        if not self.bodies.is_on:
            return row, None
        return self.bodies.prompted(row, messages, request, beside=parameters)

    def _instant(self, name: str, text: str | None, flags: list[str]) -> int | None:
        return None if text is None else self.instants.text_ns(name, text, flags)

    def _watch(self, session_id: str | None) -> None:
        if session_id is not None and self._session_rows < _WATCHED_SESSIONS:
            self._session_rows += 1
            self._sessions.add(session_id)

    def describe(self) -> None:
        """Clock, grade and notes of the file."""
        self.finish("startTime", naive_is_utc_because="LiteLLM stores UTC, and it is taken as that")
        if len(self._sessions) == self._session_rows >= _FEWEST_SESSIONS:
            self.context.note(
                "session_ids_unique",
                "Every call has a session id of its own: LiteLLM makes one up where the client"
                " sends none (litellm_session_id), so conversations are not known.",
            )


def _is_end(first_ns: int | None, end_ns: int | None, is_stream: bool | None) -> bool:
    """Whether the first token is only the end again, as LiteLLM writes it without a stream.

    Where the log does not say whether it was one, clocks read one after the other are the same.
    """
    if is_stream is False or first_ns is None or end_ns is None:
        return is_stream is False
    return first_ns == end_ns or (is_stream is None and abs(end_ns - first_ns) <= _SAME_NS)


def _status(call: Attempt) -> Status:
    if call.is_cache_hit or (call.request_id and _CACHE_HIT.search(call.request_id)):
        return "gateway_cache_hit"
    if (call.status or "").lower() not in _FAILURES:
        return "ok"
    return "cancelled" if call.error_code == _CLIENT_CLOSED else "error"


def _call_type(text: str | None) -> str | None:
    return text if text is not None and _CALL_TYPE.fullmatch(text) else None
