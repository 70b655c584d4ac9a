"""A whole format of another package: the access log of Ourgate, one JSON object a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from kvtrace.ingest.clocks import parse_iso
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow


class _Call(msgspec.Struct):
    """What Ourgate writes; what it leaves out is unknown."""

    ourgate: str
    at: str
    llm: str | None = None
    tokens_in: int | None = None
    tokens_cached: int | None = None
    tokens_out: int | None = None


def _sniff(head: Head) -> Guess | None:
    ours = sum("ourgate" in one and "at" in one for one in head.json_objects)
    if not ours:
        return None
    return Guess(0.97, f"{ours} of {len(head.json_objects)} objects name Ourgate's version")


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    context.clock, context.clock_reason = "utc", "`at` carries a zone"
    for record in records:
        try:
            call = msgspec.json.decode(record.data, type=_Call)
        except msgspec.DecodeError:
            context.tally.reject(record, "not_a_call", "no object with the fields of a call")
            continue
        time = parse_iso(call.at)
        counts = (call.tokens_in, call.tokens_cached, call.tokens_out)
        if time is None or any(count is not None and not 0 <= count < 2**53 for count in counts):
            context.tally.reject(record, "bad_value", "`at` or a count is out of range")
            continue
        context.tally.use()
        yield RequestRow(
            offset=record.offset,
            line=record.line,
            arrived_at_ns=time.ns,
            llm=call.llm,
            prompt_tokens=call.tokens_in,
            cached_tokens=call.tokens_cached,
            output_tokens=call.tokens_out,
        )


FORMAT = Format(
    name="ourgate",
    title="Ourgate access log (JSON lines)",
    framing="lines",
    best_grade="B",
    supplies=("arrived_at_ns", "llm", "prompt_tokens", "cached_tokens", "output_tokens"),
    missing={"reuse": "block hashes; Ourgate does not have them"},
    versions="Ourgate 1",
    sniff=_sniff,
    read=_read,
    enable_hint="ourgate serve --access-log calls.jsonl",
)
