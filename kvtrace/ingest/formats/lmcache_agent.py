"""LMCache agent traces: JSON lines with the text of each call's prompt.

Shape read from LMCache/lmcache-agent-trace (miniswe, taubench, swebench): `timestamp` in epoch
microseconds, `input`, the whole prompt, `output` (may be empty), `session_id`. There are no token
counts: texts become block keys and counts while they are read, and are not kept. Calls are not in
order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.prompts import Prompt
from kvtrace.ingest.prompts.rows import Prompted, prompted_rows
from kvtrace.ingest.values.instants import Instants
from kvtrace.ingest.values.jsonfields import decode_json
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of

_COLUMNS: Final = frozenset({"timestamp", "input", "output", "session_id"})


class _Call(msgspec.Struct, gc=False):
    input: str
    timestamp: msgspec.Raw = NO_VALUE
    output: str | None = None
    session_id: str | int | None = None
    model: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Call)


class _AgentFile:
    def __init__(self, context: ReadContext) -> None:
        self._hasher = context.prompt_hasher
        self.instants = Instants(context)

    def rows(self, record: Record) -> list[Prompted]:
        """The request of one call.

        Raises:
            msgspec.ValidationError: a field is missing or of the wrong type.
            msgspec.DecodeError: not JSON.
        """
        call = decode_json(_DECODER, record.data)
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            session_id=id_of(call.session_id),
            llm=name_of(call.model),
            arrived_at_ns=self.instants.raw_ns("timestamp", call.timestamp, flags),
        )
        if call.output and self._hasher is not None:
            # an empty output may be a tool call that was not recorded
            row.output_tokens, estimated = self._hasher.count(call.output)
            flags += estimated
        row.flags = tuple(flags)
        return [(row, Prompt(call.input.encode("utf-8", "surrogatepass")))]


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _AgentFile(context)
    yield from prompted_rows(records, context, file.rows)
    file.instants.finish("timestamp")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(entry.keys() >= _COLUMNS and isinstance(entry["input"], str) for entry in objects)
    if not ours or 2 * ours < len(objects):
        return None
    return Guess(0.9, f"{ours} of {len(objects)} objects have timestamp, session_id and texts")


FORMATS: tuple[Format, ...] = (
    Format(
        name="lmcache_agent",
        title="LMCache agent trace with prompt texts (JSON lines)",
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
            "prompt_tokens": "exact counts need `--tokenizer FILE`; by bytes they are estimated",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
        },
        versions="LMCache/lmcache-agent-trace, miniswe, taubench and swebench",
        sniff=_sniff,
        read=_read,
        enable_hint="a public data set; for your own agents, log timestamp (µs), session_id, input"
        " and output of each call; `--tokenizer FILE` gives exact lengths",
    ),
)
