"""TraceLab rounds of coding agents: JSON lines, one LLM call each, with what the provider reported.

Shape read from uw-syfi/TraceLab (`round_trace.jsonl`, releases 0.0.1 and 0.0.2): Claude Code and
Codex. `input_tokens_total` counts all prompt tokens and `prefix_tokens` those from the provider's
cache (`claude_cache_read_input_tokens`, Codex's `cached_input_tokens`). A round is submitted with
the last of the inputs that it answers; the time of its last output is written by the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.instants import Instants
from kvtrace.ingest.values.jsonfields import (
    between_ns,
    count_of,
    decode_json,
    flag_lengths,
    json_record_rows,
)
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of

_INPUTS: Final = frozenset({"user_message", "tool_result"})


class _Event(msgspec.Struct, gc=False):
    event_type: str = ""
    timestamp: msgspec.Raw = NO_VALUE


class _Round(msgspec.Struct, gc=False):
    newly_append_tokens: int | None
    input_tokens_total: int | None = None
    prefix_tokens: int | None = None
    claude_uncached_input_tokens: int | None = None
    claude_cache_creation_input_tokens: int | None = None
    claude_cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    session_id: str | int | None = None
    round_id: str | int | None = None
    round_index: int | None = None
    project: str | int | None = None
    provider: str | None = None
    model: str | None = None
    timing_events: list[_Event] | None = None


_DECODER: Final = msgspec.json.Decoder(_Round)


class _TraceLabFile:
    def __init__(self, context: ReadContext) -> None:
        self.instants = Instants(context)
        self.with_end = 0

    def rows(self, record: Record) -> list[RequestRow]:
        """The request of one round.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        raw = decode_json(_DECODER, record.data)
        flags: list[str] = []
        submitted_ns, ended_ns = self._times(raw.timing_events or [], flags)
        turn = count_of("round_index", raw.round_index)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.round_id),
            session_id=id_of(raw.session_id),
            turn=turn,
            tenant=id_of(raw.project),
            llm=name_of(raw.model),
            request_type=name_of(raw.provider),
            arrived_at_ns=submitted_ns,
            prompt_tokens=_prompt_tokens(raw, flags),
            cached_tokens=count_of("prefix_tokens", raw.prefix_tokens),
            cache_write_tokens=count_of(
                "claude_cache_creation_input_tokens", raw.claude_cache_creation_input_tokens
            ),
            output_tokens=count_of("output_tokens", raw.output_tokens),
            e2e_ns=between_ns(submitted_ns, ended_ns, flags),
        )
        row.flags = tuple(flags)
        flag_lengths(row)
        self.with_end += row.e2e_ns is not None
        return [row]

    def _times(self, events: list[_Event], flags: list[str]) -> tuple[int | None, int | None]:
        """(the last input before any output, the last output), in ns; None where there is none."""
        submitted_ns = ended_ns = None
        for event in events:
            at_ns = self.instants.raw_ns("timestamp", event.timestamp, flags)
            if event.event_type not in _INPUTS:
                ended_ns = at_ns if at_ns is not None else ended_ns
            elif ended_ns is None and at_ns is not None:
                submitted_ns = at_ns if submitted_ns is None else max(submitted_ns, at_ns)
        return submitted_ns, ended_ns


def _prompt_tokens(raw: _Round, flags: list[str]) -> int | None:
    """All prompt tokens; flagged `total_mismatch` where the parts do not add up to them."""
    new = count_of("newly_append_tokens", raw.newly_append_tokens)
    total = count_of("input_tokens_total", raw.input_tokens_total)
    prefix = count_of("prefix_tokens", raw.prefix_tokens)
    parts = (
        count_of("claude_uncached_input_tokens", raw.claude_uncached_input_tokens),
        raw.claude_cache_creation_input_tokens,
        count_of("claude_cache_read_input_tokens", raw.claude_cache_read_input_tokens),
    )
    if new is None or prefix is None:
        return total
    if total is None:
        return new + prefix
    known = [part for part in parts if part is not None]
    if new + prefix != total or (len(known) == len(parts) and sum(known) != total):
        flags.append("total_mismatch")
    return total


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _TraceLabFile(context)
    context.evidence_grade = "B"
    yield from json_record_rows(records, context.tally, file.rows)
    file.instants.finish("timing_events")
    if file.with_end:
        context.note(
            "e2e_from_events",
            "durations run from the last input of a round to the last output that the agent wrote"
            " down: a proxy for the time of the API call",
        )


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum("newly_append_tokens" in entry for entry in objects)
    if not ours or 2 * ours < len(objects):
        return None
    return Guess(0.98, f"{ours} of {len(objects)} objects have newly_append_tokens")


FORMATS: tuple[Format, ...] = (
    Format(
        name="tracelab",
        title="TraceLab rounds of coding agents (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "turn",
            "tenant",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "e2e_ns",
        ),
        missing={
            "reuse": "the rounds have counts and no block hashes; a trace with them, such as the"
            " Weka or Mooncake shape",
            "ttft": "the agents do not write it down; spans of the same calls",
            "queue": "the calls went to a hosted API; engine logs of your own service",
        },
        versions="uw-syfi/TraceLab round_trace.jsonl of releases 0.0.1 and 0.0.2 (Claude Code and"
        " Codex sessions)",
        sniff=_sniff,
        read=_read,
        enable_hint="run TraceLab's collector on the session folders of Claude Code or Codex",
    ),
)
