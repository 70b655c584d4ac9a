"""One row of a Mooncake file: a typed decode, and a careful one that names what is wrong."""

from __future__ import annotations

import json
import math
from typing import Final, NoReturn

import msgspec

from kvtrace.ingest.blocks.ids import BlockIds
from kvtrace.ingest.contract import Record, RequestRow
from kvtrace.ingest.formats.mooncake.clock import ArrivalClock, fits
from kvtrace.ingest.values.limits import MAX_COUNT

_MAX_UINT64: Final = 2**64 - 1
TEXT_KEYS: Final = frozenset({"text_input", "messages", "payload"})
"""Inputs of AIPerf rows that are text; only their presence is looked at."""
_KNOWN_KEYS: Final = frozenset({"input_length", "hash_ids"}) | TEXT_KEYS

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
    delay: _Json = msgspec.UNSET


class BadFieldError(Exception):
    """A field that cannot be used: reason and detail, never the value."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


_decoder: Final = msgspec.json.Decoder(_Typed)


def parse_row(record: Record, clock: ArrivalClock, ids: BlockIds) -> RequestRow:
    """The row of a record.

    Raises:
        BadFieldError: it cannot be used.
    """
    try:
        typed = _decoder.decode(record.data)
    except (msgspec.DecodeError, RecursionError):
        return _careful_row(record, clock, ids)
    if not _is_plain(typed):
        return _careful_row(record, clock, ids)
    clock.add(typed.timestamp)
    clock.delays += typed.timestamp is None and typed.delay is not msgspec.UNSET
    ids.numeric_rows += bool(typed.hash_ids)
    return RequestRow(
        offset=record.offset,
        line=record.line,
        request_id=_id_text(typed.request_id),
        session_id=_id_text(typed.session_id),
        turn=typed.turn,
        llm=typed.model,
        prompt_tokens=typed.input_length,
        output_tokens=typed.output_length,
        flags=() if typed.input_length else ("zero_token_prompt",),
        block_keys=typed.hash_ids,
    )


def _is_plain(typed: _Typed) -> bool:
    """Whether every number is in range, so that nothing needs a closer look."""
    ids = typed.hash_ids
    timestamp = typed.timestamp
    output = typed.output_length
    return (
        0 <= typed.input_length <= MAX_COUNT
        and typed.chat_id is msgspec.UNSET
        and typed.parent_chat_id is msgspec.UNSET
        and (output is None or 0 <= output <= MAX_COUNT)
        and (timestamp is None or (timestamp >= 0 and fits(timestamp)))
        and (typed.turn is None or 0 <= typed.turn < 2**31)
        and (not ids or (min(ids) >= 0 and max(ids) <= _MAX_UINT64))
    )


def _id_text(value: str | int | None) -> str | None:
    return None if value is None or value == "" else str(value)


# The careful path: a row that is not plain is decoded to a dict and each field judged by name.


def _careful_row(record: Record, clock: ArrivalClock, ids: BlockIds) -> RequestRow:
    fields = _object(record)
    if "chat_id" in fields or "parent_chat_id" in fields:
        raise BadFieldError("other_format", "chat_id belongs to Qwen-Bailian (other clock, ids)")
    if not _KNOWN_KEYS & set(fields):
        raise BadFieldError("no_known_field", "neither input_length, hash_ids nor a text")
    coerced: list[str] = []
    prompt = _count(fields, "input_length", coerced)
    if prompt is None and not TEXT_KEYS & set(fields):
        raise BadFieldError("missing_field", "input_length")
    output = _count(fields, "output_length", coerced)
    block_keys = _ids(fields.get("hash_ids"), ids)
    turn = _count(fields, "turn", coerced)
    timestamp = _timestamp(fields, coerced)
    clock.add(timestamp)
    clock.delays += timestamp is None and fields.get("delay") is not None
    flags = ("zero_token_prompt",) if prompt == 0 else ()
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
        prompt_tokens=prompt,
        output_tokens=output,
        flags=flags,
        block_keys=block_keys,
    )


def _reject_constant(_name: str) -> NoReturn:
    raise BadFieldError("not_a_number", "NaN or Infinity")


def _object(record: Record) -> dict[str, object]:
    try:
        value = json.loads(record.data, parse_constant=_reject_constant)
    except UnicodeDecodeError:
        raise BadFieldError("invalid_utf8", "the bytes are not UTF-8") from None
    except RecursionError:
        raise BadFieldError("too_deep", "nested too deeply") from None
    except ValueError:
        if not record.terminated:
            raise BadFieldError("truncated", "the file ends inside the record") from None
        raise BadFieldError("invalid_json", "not a JSON value") from None
    if not isinstance(value, dict):
        raise BadFieldError("not_an_object", "a JSON value that is not an object")
    return value


def _number(value: object, name: str, coerced: list[str]) -> int | float:
    """A finite number; text that is a number is taken and noted in `coerced`."""
    if isinstance(value, str):
        try:
            value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
        except ValueError:
            raise BadFieldError("wrong_type", f"{name} is text") from None
        coerced.append(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadFieldError("wrong_type", f"{name} is {_type_name(value)}")
    if not math.isfinite(value):
        raise BadFieldError("not_a_number", f"{name} is not finite")
    return value


def _type_name(value: object) -> str:
    names = {bool: "a boolean", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), "of an unexpected type")


def _whole(value: object, name: str, coerced: list[str], limit: int) -> int:
    number = _number(value, name, coerced)
    if number < 0:
        raise BadFieldError("negative", f"{name} is negative")
    if number > limit:
        raise BadFieldError("out_of_range", f"{name} is out of range")
    if number != int(number):
        raise BadFieldError("not_whole", f"{name} is not a whole number")
    return int(number)


def _count(fields: dict[str, object], name: str, coerced: list[str]) -> int | None:
    value = fields.get(name)
    return None if value is None else _whole(value, name, coerced, MAX_COUNT)


def _ids(value: object, ids: BlockIds) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise BadFieldError("wrong_type", f"hash_ids is {_type_name(value)}")
    keys = [_block_id(item, ids) for item in value]
    ids.count(value)
    return keys


def _block_id(item: object, ids: BlockIds) -> int:
    if item is None:
        raise BadFieldError("null_block_id", "a block id in hash_ids is null")
    if isinstance(item, str):
        return ids.text_key(item)
    if isinstance(item, float):
        raise BadFieldError("wrong_type", "a block id in hash_ids is not an integer")
    return _whole(item, "a block id in hash_ids", [], _MAX_UINT64)


def _timestamp(fields: dict[str, object], coerced: list[str]) -> int | float | None:
    value = fields.get("timestamp")
    if value is None:
        return None
    number = _number(value, "timestamp", coerced)
    if number < 0:
        raise BadFieldError("negative", "timestamp is negative")
    if not fits(number):
        raise BadFieldError("out_of_range", "timestamp is out of range")
    return number


def _careful_id(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    is_id = isinstance(value, str | int) and not isinstance(value, bool)
    return _id_text(value) if is_id else None  # type: ignore[arg-type]
