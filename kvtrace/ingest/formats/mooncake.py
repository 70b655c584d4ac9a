"""The Mooncake family: JSON lines with token lengths and chained block ids per request.

Shapes, read from the public traces of kvcache-ai/Mooncake (FAST'25 release and arXiv trace) and
the loaders of AIPerf 0.13 (`mooncake_trace`: optional `session_id`, `delay`, `text_input`,
`messages`, `payload`, float timestamps), Dynamo (agent traces converted to Mooncake rows: request
ids, other block sizes) and guidellm 0.8 (the same columns, `timestamp` in seconds).

Facts: `timestamp` is ms from the start; ids are prefix-chained and mean something inside one file
only; the block size is not stated in the file, so it is inferred and checked. Texts are never kept.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NoReturn

import msgspec
import numpy as np

from kvtrace.ingest.contract import (
    Format,
    Guess,
    Head,
    ReadContext,
    Record,
    RequestRow,
    Row,
)
from kvtrace.schema.arrays import IntArray
from kvtrace.units import NS_PER_MS

BLOCK_SIZES: Final = (1, 8, 16, 32, 64, 128, 256, 512, 784, 1024, 2048, 4096)
"""Sizes, in tokens, that engines and public traces use (784: pages of a hybrid model)."""
_MIN_AGREEMENT: Final = 0.99
"""Share of rows that must have exactly the blocks that a size implies."""
_EPOCH_MS: Final = 10**11
"""From here on a number of ms is a date (1973 or later), not a time since the start."""
_MAX_INT64: Final = 2**63 - 1
_MAX_UINT64: Final = 2**64 - 1
_TEXT_KEYS: Final = frozenset({"text_input", "messages", "payload"})
_KNOWN_KEYS: Final = frozenset({"input_length", "hash_ids"}) | _TEXT_KEYS

_Json = msgspec.Raw | msgspec.UnsetType


class _Typed(msgspec.Struct, gc=False):
    """The common row, decoded straight from its bytes; anything else takes the careful path."""

    input_length: int
    timestamp: int | float | None = None
    output_length: int | None = None
    hash_ids: list[int] | None = None
    chat_id: _Json = msgspec.UNSET
    parent_chat_id: _Json = msgspec.UNSET
    request_id: str | int | None = None
    session_id: str | int | None = None
    turn: int | None = None
    model: str | None = None


class _BadFieldError(Exception):
    """A field that cannot be used: reason and detail, never the value."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


class _Reading:
    """What the rows of one file add up to; judged when the file ends."""

    def __init__(self, context: ReadContext) -> None:
        self.context = context
        self.input_lengths = array("q")
        self.block_counts = array("q")
        self.rows = 0
        self.timed = 0
        self.is_epoch: bool | None = None
        self.disagreeing = 0
        self.last_ms = -math.inf
        self.out_of_order = 0

    def arrival_ns(self, timestamp: float | None) -> tuple[int | None, tuple[str, ...]]:
        """Arrival of a row in ns, and its flags; null where its clock is not the file's."""
        if timestamp is None:
            return None, ()
        is_epoch = timestamp >= _EPOCH_MS
        if self.is_epoch is None:
            self.is_epoch = is_epoch
        if is_epoch != self.is_epoch:
            self.disagreeing += 1
            return None, ("clock_disagrees",)
        if timestamp < self.last_ms:
            self.out_of_order += 1
        self.last_ms = max(self.last_ms, timestamp)
        self.timed += 1
        if isinstance(timestamp, int):
            return timestamp * NS_PER_MS, ()
        return round(timestamp * NS_PER_MS), ()


_decoder: Final = msgspec.json.Decoder(_Typed)


def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """Rows of one file; the clock and the block size are in the context when it ends."""
    reading = _Reading(context)
    tally = context.tally
    for record in records:
        try:
            row = _row(record, reading)
        except _BadFieldError as bad:
            tally.reject(record, bad.reason, bad.detail)
            continue
        tally.use()
        reading.rows += 1
        if row.block_keys is not None and row.prompt_tokens is not None:
            reading.input_lengths.append(row.prompt_tokens)
            reading.block_counts.append(len(row.block_keys))
        yield row
    _judge_clock(reading)
    _judge_blocks(reading)


def _row(record: Record, reading: _Reading) -> RequestRow:
    try:
        typed = _decoder.decode(record.data)
    except (msgspec.DecodeError, RecursionError):
        return _careful_row(record, reading)
    if not _is_plain(typed):
        return _careful_row(record, reading)
    arrived_at_ns, flags = reading.arrival_ns(typed.timestamp)
    if typed.input_length == 0:
        flags = (*flags, "zero_token_prompt")
    return RequestRow(
        offset=record.offset,
        line=record.line,
        request_id=_id_text(typed.request_id),
        session_id=_id_text(typed.session_id),
        turn=typed.turn,
        llm=typed.model,
        arrived_at_ns=arrived_at_ns,
        prompt_tokens=typed.input_length,
        output_tokens=typed.output_length,
        flags=flags,
        block_keys=typed.hash_ids,
    )


def _is_plain(typed: _Typed) -> bool:
    """Whether every number is in range, so that nothing needs a closer look."""
    ids = typed.hash_ids
    timestamp = typed.timestamp
    output = typed.output_length
    return (
        0 <= typed.input_length <= _MAX_INT64
        and typed.chat_id is msgspec.UNSET
        and typed.parent_chat_id is msgspec.UNSET
        and (output is None or 0 <= output <= _MAX_INT64)
        and (timestamp is None or 0 <= timestamp <= _MAX_INT64 // NS_PER_MS)
        and (typed.turn is None or 0 <= typed.turn < 2**31)
        and (not ids or (min(ids) >= 0 and max(ids) <= _MAX_UINT64))
    )


def _id_text(value: str | int | None) -> str | None:
    return None if value is None or value == "" else str(value)


# The careful path: a row that is not plain is decoded to a dict and each field judged by name.


def _careful_row(record: Record, reading: _Reading) -> RequestRow:
    fields = _object(record)
    if "chat_id" in fields or "parent_chat_id" in fields:
        raise _BadFieldError("other_format", "chat_id belongs to Qwen-Bailian (other clock, ids)")
    if not _KNOWN_KEYS & set(fields):
        raise _BadFieldError("no_known_field", "neither input_length, hash_ids nor a text")
    coerced: list[str] = []
    prompt = _count(fields, "input_length", coerced)
    if prompt is None and not _TEXT_KEYS & set(fields):
        raise _BadFieldError("missing_field", "input_length")
    output = _count(fields, "output_length", coerced)
    block_keys = _ids(fields.get("hash_ids"), coerced)
    turn = _count(fields, "turn", coerced)
    arrived_at_ns, flags = reading.arrival_ns(_timestamp(fields, coerced))
    if prompt == 0:
        flags = (*flags, "zero_token_prompt")
    if coerced:
        flags = (*flags, "number_was_text")
    model = fields.get("model")
    return RequestRow(
        offset=record.offset,
        line=record.line,
        request_id=_careful_id(fields, "request_id"),
        session_id=_careful_id(fields, "session_id"),
        turn=turn if turn is None or turn < 2**31 else None,
        llm=model if isinstance(model, str) else None,
        arrived_at_ns=arrived_at_ns,
        prompt_tokens=prompt,
        output_tokens=output,
        flags=flags,
        block_keys=block_keys,
    )


def _reject_constant(_name: str) -> NoReturn:
    raise _BadFieldError("not_a_number", "NaN or Infinity")


def _object(record: Record) -> dict[str, object]:
    try:
        value = json.loads(record.data, parse_constant=_reject_constant)
    except UnicodeDecodeError:
        raise _BadFieldError("invalid_utf8", "the bytes are not UTF-8") from None
    except RecursionError:
        raise _BadFieldError("too_deep", "nested too deeply") from None
    except ValueError:
        if not record.terminated:
            raise _BadFieldError("truncated", "the file ends inside the record") from None
        raise _BadFieldError("invalid_json", "not a JSON value") from None
    if not isinstance(value, dict):
        raise _BadFieldError("not_an_object", "a JSON value that is not an object")
    return value


def _number(value: object, name: str, coerced: list[str]) -> int | float:
    """A finite number; text that is a number is taken and noted in `coerced`."""
    if isinstance(value, str):
        try:
            value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
        except ValueError:
            raise _BadFieldError("wrong_type", f"{name} is text") from None
        coerced.append(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _BadFieldError("wrong_type", f"{name} is {_type_name(value)}")
    if not math.isfinite(value):
        raise _BadFieldError("not_a_number", f"{name} is not finite")
    return value


def _type_name(value: object) -> str:
    names = {bool: "a boolean", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), "of an unexpected type")


def _whole(value: object, name: str, coerced: list[str], limit: int) -> int:
    number = _number(value, name, coerced)
    if number < 0:
        raise _BadFieldError("negative", f"{name} is negative")
    if number > limit:
        raise _BadFieldError("out_of_range", f"{name} is out of range")
    if number != int(number):
        raise _BadFieldError("not_whole", f"{name} is not a whole number")
    return int(number)


def _count(fields: dict[str, object], name: str, coerced: list[str]) -> int | None:
    value = fields.get(name)
    return None if value is None else _whole(value, name, coerced, _MAX_INT64)


def _ids(value: object, coerced: list[str]) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise _BadFieldError("wrong_type", f"hash_ids is {_type_name(value)}")
    if any(item is None for item in value):
        raise _BadFieldError("null_block_id", "a block id in hash_ids is null")
    if any(isinstance(item, float) for item in value):
        raise _BadFieldError("wrong_type", "a block id in hash_ids is not an integer")
    return [_whole(item, "a block id in hash_ids", coerced, _MAX_UINT64) for item in value]


def _timestamp(fields: dict[str, object], coerced: list[str]) -> int | float | None:
    value = fields.get("timestamp")
    if value is None:
        return None
    number = _number(value, "timestamp", coerced)
    if number < 0:
        raise _BadFieldError("negative", "timestamp is negative")
    if number > _MAX_INT64 // NS_PER_MS:
        raise _BadFieldError("out_of_range", "timestamp is out of range")
    return number


def _careful_id(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    is_id = isinstance(value, str | int) and not isinstance(value, bool)
    return _id_text(value) if is_id else None  # type: ignore[arg-type]


def _judge_clock(reading: _Reading) -> None:
    context = reading.context
    if not reading.timed:
        context.clock = "order"
        context.clock_reason = "no row has a timestamp"
    elif reading.is_epoch:
        context.clock = "utc"
        context.clock_reason = "timestamp is in the range of epoch milliseconds"
    else:
        context.clock = "relative"
        context.clock_reason = "timestamp is taken as milliseconds from the start of the trace"
        context.note(
            "timestamp_unit_assumed",
            "timestamps are taken as milliseconds; guidellm writes seconds in the same columns, "
            "which cannot be told apart",
        )
    if reading.out_of_order:
        context.note(
            "out_of_order",
            f"{reading.out_of_order} rows are earlier than a row before them; "
            "they are put in order of time, ties in file order",
        )
    if reading.disagreeing:
        context.note(
            "clock_disagrees",
            f"{reading.disagreeing} rows are on another clock than the first; "
            "their arrival is unknown",
        )
    if reading.timed and reading.timed + reading.disagreeing < reading.rows:
        missing = reading.rows - reading.timed - reading.disagreeing
        context.note(
            "arrival_unknown",
            f"{missing} rows have no timestamp (turns with a `delay` start when the turn before "
            "ends, which is not recorded)",
        )


def _judge_blocks(reading: _Reading) -> None:
    context = reading.context
    lengths = np.frombuffer(reading.input_lengths, dtype=np.int64)
    counts = np.frombuffer(reading.block_counts, dtype=np.int64)
    if not len(counts) or not counts.any():
        context.evidence_grade = "L"
        if reading.rows:
            context.note("no_block_ids", "no row has block ids: lengths only, reuse is unknown")
        return
    # A row of zero tokens without blocks fits every size and says nothing.
    telling = (lengths > 0) | (counts > 0)
    lengths, counts = lengths[telling], counts[telling]
    sizes = (context.block_size_tokens,) if context.block_size_tokens else BLOCK_SIZES
    fits = {size: _agreement(lengths, counts, size) for size in sizes}
    if context.block_size_tokens is not None:
        _take_forced(context, context.block_size_tokens, fits, lengths)
        return
    fitting = [size for size, fit in fits.items() if max(fit) >= _MIN_AGREEMENT]
    if len(fitting) == 1:
        _take_inferred(context, fitting[0], fits, lengths)
        return
    context.evidence_grade = "L"
    context.note("block_size_unknown", _unknown_size(fits, fitting, len(counts)))


def _agreement(
    lengths: IntArray,
    counts: IntArray,
    size: int,
) -> tuple[float, float]:
    """Share of rows with ceil(length / size) blocks, and with floor(length / size)."""
    rows = max(len(counts), 1)
    ceil = np.count_nonzero((lengths + size - 1) // size == counts) / rows
    floor = np.count_nonzero(lengths // size == counts) / rows
    return ceil, floor


def _take_forced(
    context: ReadContext,
    size: int,
    fits: dict[int, tuple[float, float]],
    lengths: IntArray,
) -> None:
    _take(context, size, fits[size], lengths)
    share = max(fits[size])
    context.block_size_reason = f"given; {share:.1%} of {len(lengths)} rows agree"
    if share < _MIN_AGREEMENT:
        context.note(
            "block_size_disagrees",
            f"a block size of {size} tokens was given, but only {share:.1%} of the rows with "
            "block ids have the blocks that it implies; the others lose their blocks",
        )


def _take_inferred(
    context: ReadContext,
    size: int,
    fits: dict[int, tuple[float, float]],
    lengths: IntArray,
) -> None:
    _take(context, size, fits[size], lengths)
    how = "floor" if context.partial_tail == "dropped" else "ceil"
    context.block_size_reason = (
        f"inferred: {how}(input_length / {size}) equals the number of block ids in "
        f"{max(fits[size]):.1%} of {len(lengths)} rows, and no other size fits"
    )
    context.note("block_size_inferred", f"block size {size} tokens, {context.block_size_reason}")


def _take(
    context: ReadContext,
    size: int,
    fit: tuple[float, float],
    lengths: IntArray,
) -> None:
    ceil, floor = fit
    context.found_block_size_tokens = size
    if ceil >= floor:
        has_tails = bool(np.any(lengths % size))
        context.partial_tail = "counted" if has_tails else "none"
    else:
        context.partial_tail = "dropped"


def _unknown_size(fits: dict[int, tuple[float, float]], fitting: Sequence[int], rows: int) -> str:
    hint = "state it with `--block-size N`"
    if fitting:
        names = ", ".join(map(str, fitting))
        return (
            f"the block size cannot be told from {rows} rows (these fit: {names} tokens), so "
            f"block ids are not used; {hint}"
        )
    best = max(fits, key=lambda size: max(fits[size]))
    return (
        f"no block size fits 99 % of {rows} rows (nearest: {best} tokens, "
        f"{max(fits[best]):.0%}), so block ids are not used; {hint}"
    )


def sniff(head: Head) -> Guess | None:
    """Mooncake if most first objects have its columns, and Bailian's ids are not among them."""
    objects = head.json_objects
    if not objects:
        return None
    bailian = sum("chat_id" in entry for entry in objects)
    hashed = sum("hash_ids" in entry and "input_length" in entry for entry in objects)
    texts = sum(bool(_TEXT_KEYS & set(entry)) and _is_replayed(entry) for entry in objects)
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
    return "output_length" in entry or ("delay" in entry and "session_id" in entry)


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
            "session_key",
            "request_id_key",
            "turn",
            "llm",
            "blocks",
        ),
        missing={
            "what the deployed cache did": "join the engine's request log by request id",
            "latency": "join the engine's request log or a request-metrics file by request id",
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
