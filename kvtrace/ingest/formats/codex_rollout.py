"""Rollouts of the Codex CLI (~/.codex/sessions): the token counts of every call of a session.

Shape of Codex CLI 0.40 to 0.60, from public rollouts. `last_token_usage` is of the call,
`total_token_usage` of the session so far; the same event may come several times and is counted
once. An event is written when its call has ended; the call began after the last input before it
(a message of the user, or the output of a tool), which is taken for its arrival.
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
from kvtrace.ingest.families.gateways import GatewayFile
from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, json_record_rows
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of

TIME_IS_END_FLAG: Final = "time_is_end"
_KINDS: Final = ("session_meta", "turn_context", "event_msg", "response_item", "compacted")
_INPUTS: Final = (
    "user_message",
    "task_started",
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
)


class _Info(msgspec.Struct, gc=False):
    last_token_usage: dict[str, object] | None = None
    total_token_usage: dict[str, object] | None = None


class _Payload(msgspec.Struct, gc=False):
    type: object = None
    role: object = None
    id: object = None
    model: object = None
    info: _Info | None = None


class _Line(msgspec.Struct, gc=False):
    timestamp: msgspec.Raw = NO_VALUE
    type: object = None
    payload: _Payload | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)


class _RolloutFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)
        self._session: str | None = None
        self._model: str | None = None
        self._turn = 0
        self._input_ns: int | None = None
        self._last: _Info | None = None

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The call of one line, if it tells of one.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        payload = raw.payload
        if payload is None or name_of(raw.type) not in _KINDS:
            raise msgspec.ValidationError("no line of a rollout")
        flags: list[str] = []
        now_ns = self.gateway.instants.raw_ns("timestamp", raw.timestamp, flags)
        if payload.type == "token_count":
            return self._call(record, payload.info, now_ns, flags)
        if raw.type == "session_meta":
            self._session, self._turn, self._last = id_of(payload.id), 0, None
        elif raw.type == "turn_context":
            self._model = name_of(payload.model) or self._model
        elif payload.type in _INPUTS or payload.role == "user":
            self._input_ns = now_ns
        return Ignored("no_token_count")

    def _call(
        self, record: Record, info: _Info | None, now_ns: int | None, flags: list[str]
    ) -> list[Row] | Ignored:
        if info is None or not info.last_token_usage:
            return Ignored("token_count_without_usage")
        if info == self._last:
            return Ignored("repeated_token_count")
        usage = read_usage(info.last_token_usage)
        self._last = info
        if self._input_ns is None:
            flags.append(TIME_IS_END_FLAG)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            session_id=self._session,
            turn=self._turn if self._session is not None else None,
            llm=self._model,
            arrived_at_ns=now_ns if self._input_ns is None else self._input_ns,
        )
        self._turn += 1
        self._input_ns = None
        return [self.gateway.fill(row, usage, flags)]


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _RolloutFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.gateway.finish("timestamp of the last input before the call")
    context.note(
        "arrival_from_input",
        "Arrival is the time of the last input before the call; where there is none it is the end"
        f" of the call (rows flagged {TIME_IS_END_FLAG}).",
    )


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if 2 * ours < len(objects) or ours == 0:
        return None
    return Guess(
        0.6 + 0.35 * ours / len(objects),
        f"{ours} of {len(objects)} records are lines of a Codex rollout",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    return (
        item.get("type") in _KINDS and isinstance(item.get("payload"), dict) and "timestamp" in item
    )


FORMATS: tuple[Format, ...] = (
    Format(
        name="codex_rollout",
        title="Codex CLI rollout (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "session_id",
            "turn",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
        ),
        missing={
            "reuse": "block identity: hash the prompts of the rollout, or the engines' KV events"
            " (--kv-events-config)",
            "ttft": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "e2e": "the log of the gateway in front of the model",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
        },
        versions="Codex CLI 0.40 to 0.60, from public rollouts",
        sniff=_sniff,
        read=_read,
        enable_hint="written by default to ~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl",
    ),
)
