"""The Mooncake family: JSON lines with token lengths and chained block ids per request.

Shapes, read from the public traces of kvcache-ai/Mooncake (FAST'25 release and arXiv trace) and
the loaders of AIPerf 0.13 (`mooncake_trace`: optional `session_id`, `delay`, `text_input`,
`messages`, `payload`, float timestamps), Dynamo (agent traces converted to Mooncake rows: request
ids, other block sizes) and guidellm 0.8 (the same columns, `timestamp` in seconds).

Facts: `timestamp` is ms from the start (guidellm: s); ids are prefix-chained and mean something
inside one file only; the block size is not stated in the file, so it is inferred and checked. Texts
are never kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.ingest.contract import Format, Guess, Head
from kvtrace.ingest.formats.mooncake.reader import read
from kvtrace.ingest.formats.mooncake.rows import TEXT_KEYS

_REPLAYED_KEYS: Final = TEXT_KEYS | {"type", "tools", "timestamp", "delay", "session_id", "extra"}
"""Keys of AIPerf's rows with a text. One with others may be any log that has messages."""


def sniff(head: Head) -> Guess | None:
    """Mooncake if most first objects have its columns, and Bailian's ids are not among them."""
    objects = head.json_objects
    if not objects:
        return None
    bailian = sum("chat_id" in entry for entry in objects)
    hashed = sum("hash_ids" in entry and "input_length" in entry for entry in objects)
    texts = sum(bool(TEXT_KEYS & set(entry)) and _is_replayed(entry) for entry in objects)
    lengths = sum({"input_length", "output_length"} <= set(entry) for entry in objects)
    if bailian * 2 >= len(objects):
        return None
    if _holds_deltas(objects):
        why = (
            "rows hold only what each turn adds (Dynamo's mooncake-delta): prompts and blocks are "
            "not cumulative; convert it to plain Mooncake rows first"
        )
        return Guess(0.1, why)
    if hashed * 2 >= len(objects):
        return Guess(
            0.95, f"{hashed} of the first {len(objects)} objects have hash_ids and lengths"
        )
    if (lengths + texts) * 2 >= len(objects) and lengths + texts:
        return Guess(0.7, "objects have the columns of Mooncake rows, without block ids")
    if hashed:
        return Guess(0.5, f"{hashed} of the first {len(objects)} objects have hash_ids and lengths")
    return None


def _is_replayed(entry: dict[str, object]) -> bool:
    """Whether a row with a text says how it is replayed, as AIPerf's rows do."""
    if "output_length" in entry or ("delay" in entry and "session_id" in entry):
        return True
    return "timestamp" in entry and entry.keys() <= _REPLAYED_KEYS


def _holds_deltas(objects: Sequence[dict[str, object]]) -> bool:
    """Whether later turns of sessions never start with the blocks of the turn before.

    A cumulative prompt begins with the same first block as the turn before it; a delta does not,
    and it is shorter than what that turn left behind.
    """
    first_block: dict[str, object] = {}
    turns = deltas = 0
    for entry in objects:
        session, ids = entry.get("session_id"), entry.get("hash_ids")
        if session is None or not isinstance(ids, list) or not ids:
            continue
        key = str(session)
        if key in first_block:
            turns += 1
            deltas += ids[0] != first_block[key] and "delay" in entry
        first_block.setdefault(key, ids[0])
    return turns > 0 and deltas == turns


FORMATS: Final = (
    Format(
        name="mooncake",
        title="Mooncake trace (FAST'25, AIPerf, Dynamo and guidellm dialects)",
        framing="lines",
        best_grade="A",
        supplies=(
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "request_id",
            "session_id",
            "turn",
            "llm",
            "block_keys",
        ),
        missing={
            "cached_tokens": "join the engine's request log by request id",
            "ttft": "join the engine's request log or a request-metrics file by request id",
        },
        versions=(
            "FAST'25 release and arXiv trace of kvcache-ai/Mooncake; AIPerf 0.13 mooncake_trace; "
            "rows converted by Dynamo; guidellm 0.8"
        ),
        sniff=sniff,
        read=read,
        enable_hint="Dynamo: `DYN_REQUEST_TRACE=1`, then convert the trace to Mooncake rows",
    ),
)
