"""Captured messages of a KV event publisher, unpacked to batches of events that are still raw.

The capture is one JSON object a line around the parts of the ZMQ message: topic, number and the
msgpack payload as hex or base64; or the batch as a subscriber had decoded it. A payload is an array
(time, events, rank) up to vLLM 0.22 and SGLang 0.5.10, a map from vLLM 0.25 and SGLang 0.5.23 on.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import seconds_to_ns

REPLAY_END: Final = -1
"""The number that ends a replay (eight bytes of 0xff)."""
_REPLAY_ENDS: Final = (REPLAY_END, (1 << 64) - 1)
_RANKS: Final = ("data_parallel_rank", "attn_dp_rank", "dp_rank")
_MAX_RANK: Final = 1 << 20


class Captured(msgspec.Struct, gc=False):
    """One captured message. `recv_ts`, `note` and further fields of a subscriber are left out."""

    topic: str | None = None
    seq: int | None = None
    payload_hex: str | None = None
    payload_b64: str | None = None
    payload: object = None
    """Hex or base64 text, or the decoded batch."""
    ts: Decimal | None = None
    events: list[object] | None = None
    data_parallel_rank: int | None = None
    attn_dp_rank: int | None = None
    dp_rank: int | None = None


class Batch(msgspec.Struct, gc=False):
    """The events that an engine published at once."""

    topic: str
    number: int | None
    rank: int | None
    at_ns: int
    events: Sequence[object]


_DECODER: Final = msgspec.json.Decoder(Captured)


def parse_batch(data: bytes) -> Batch | None:
    """The batch of one captured message; None if it is the end marker of a replay.

    Raises:
        msgspec.ValidationError: a part is missing, of the wrong type or out of range.
        msgspec.DecodeError: neither JSON nor msgpack.
        RecursionError: it is nested too deeply.
    """
    captured = _DECODER.decode(data)
    if captured.seq in _REPLAY_ENDS:
        return None
    if captured.seq is not None and not 0 <= captured.seq < 1 << 63:
        raise msgspec.ValidationError("`seq` is out of range")
    time, events, rank = _content(captured)
    if rank is not None and not 0 <= rank < _MAX_RANK:
        raise msgspec.ValidationError("the data-parallel rank is out of range")
    at_ns = seconds_to_ns(time)
    if at_ns is None or at_ns <= 0:
        raise msgspec.ValidationError("`ts` is no time in seconds")
    return Batch(captured.topic or "", captured.seq, rank, at_ns, events)


def _content(captured: Captured) -> tuple[Decimal, Sequence[object], int | None]:
    if captured.events is not None:
        if captured.ts is None:
            raise msgspec.ValidationError("the batch has no `ts`")
        ranks = (captured.data_parallel_rank, captured.attn_dp_rank, captured.dp_rank)
        return captured.ts, captured.events, next((r for r in ranks if r is not None), None)
    payload = _payload(captured)
    if isinstance(payload, list) and len(payload) >= 2:
        time, events, rank = payload[0], payload[1], payload[2] if len(payload) > 2 else None
    elif isinstance(payload, dict):
        time, events = payload.get("ts"), payload.get("events")
        rank = next((payload[name] for name in _RANKS if payload.get(name) is not None), None)
    else:
        raise msgspec.ValidationError("the payload is no batch of events")
    if not isinstance(events, list):
        raise msgspec.ValidationError("the batch has no list of events")
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool)):
        raise msgspec.ValidationError("the data-parallel rank is no number")
    return _seconds(time), events, rank


def _payload(captured: Captured) -> object:
    """The decoded payload: lists, maps, numbers, bytes."""
    packed = captured.payload_hex or captured.payload_b64
    if packed is None:
        if not isinstance(captured.payload, str):
            return captured.payload
        packed = captured.payload
    try:
        is_hex = packed is captured.payload_hex or _is_hex(packed)
        data = bytes.fromhex(packed) if is_hex else base64.b64decode(packed, validate=True)
    except (ValueError, binascii.Error) as cause:
        raise msgspec.DecodeError("the payload is neither hex nor base64") from cause
    return msgspec.msgpack.decode(data)


def _is_hex(text: str) -> bool:
    return len(text) % 2 == 0 and not text.strip("0123456789abcdefABCDEF")


def _seconds(time: object) -> Decimal:
    """A time as written: the shortest decimal that is this float."""
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise msgspec.ValidationError("`ts` is no number")
    return Decimal(repr(time))
