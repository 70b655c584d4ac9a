"""Frames of an LMCache trace: what they hold, checked, as far as it is read.

Shapes read from the sources of LMCache 0.5 (`lmcache/v1/mp_observability/trace`): msgpack maps with
a `type`; values that msgpack does not know are wrapped as `{"__t__": name, "v": value}`.
"""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import seconds_to_ns

MAGIC: Final = "LMCT"
FORMAT_VERSION: Final = 1
_KEY_BYTES: Final = 8
_MAX_OBJECT_BYTES: Final = 1 << 44
_DTYPE_BYTES: Final = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}


class Header(msgspec.Struct, tag="header", gc=False):
    """The first frame. The server's configuration in it is not read: it may name hosts."""

    magic: object
    format_version: int
    level: str = ""
    lmcache_version: str = ""


class Call(msgspec.Struct, tag="record", gc=False):
    """One call of the storage manager, as it was entered; what came of it is not recorded."""

    t_wall: float
    qualname: str
    args: dict[str, object]


class ObjectKey(msgspec.Struct, gc=False):
    """One object: a chunk of one rank and one group of layers."""

    chunk_hash: bytes | int
    model_name: str = ""
    kv_rank: int = 0
    object_group_id: int = 0

    @property
    def part(self) -> tuple[int, int]:
        """Which part of its chunk it is."""
        return self.kv_rank, self.object_group_id


class _WrappedKey(msgspec.Struct, gc=False):
    v: ObjectKey


class _Layout(msgspec.Struct, gc=False):
    shapes: list[list[int]]
    dtypes: list[str]


_FRAME: Final = msgspec.msgpack.Decoder(Header | Call)


def decode_frame(data: bytes) -> Header | Call:
    """The frame.

    Raises:
        msgspec.DecodeError: not msgpack, or a field is missing or of the wrong type.
    """
    try:
        return _FRAME.decode(data)
    except (RecursionError, UnicodeDecodeError) as cause:
        raise msgspec.DecodeError("not a frame") from cause


def wall_ns(call: Call) -> int:
    """When the call was entered, ns from the epoch.

    Raises:
        msgspec.ValidationError: it is no time.
    """
    at_ns = seconds_to_ns(Decimal(repr(call.t_wall)))
    if at_ns is None or at_ns <= 0:
        raise msgspec.ValidationError("`t_wall` is no time")
    return at_ns


def argument(call: Call, name: str) -> object:
    """An argument without its wrapping, be it an argument of its own or a field of the `spec`."""
    value = call.args.get(name)
    if value is None:
        spec = unwrapped(call.args.get("spec"))
        value = spec.get(name) if isinstance(spec, dict) else None
    return unwrapped(value)


def unwrapped(value: object) -> object:
    """The value inside `{"__t__": …, "v": …}`, or the value itself."""
    if isinstance(value, dict) and "__t__" in value:
        return value.get("v")
    return value


def object_keys(call: Call) -> list[ObjectKey]:
    """The objects that a call names, in order.

    Raises:
        msgspec.ValidationError: there are none, or they have another shape.
    """
    found = msgspec.convert(argument(call, "keys"), list[_WrappedKey], builtin_types=(bytes,))
    return [wrapped.v for wrapped in found]


def chunk_key(key: ObjectKey, run_key: bytes) -> int:
    """The key of a chunk: its 64-bit hash, or a keyed 64-bit hash of a longer one.

    The same as that of LMCache's lookup-hash files, so that both speak of the same blocks.

    Raises:
        msgspec.ValidationError: the hash is empty or past 64 bytes.
    """
    hashed = key.chunk_hash
    if isinstance(hashed, int):
        if not -(1 << 63) <= hashed < 1 << 64:
            raise msgspec.ValidationError("`chunk_hash` is a number outside 64 bits")
        return hashed & ((1 << 64) - 1)
    if not 0 < len(hashed) <= 64:
        raise msgspec.ValidationError("`chunk_hash` has no length of a hash")
    if len(hashed) <= _KEY_BYTES:
        return int.from_bytes(hashed)
    digits = hashed.hex().encode()
    return int.from_bytes(hashlib.blake2b(digits, digest_size=_KEY_BYTES, key=run_key).digest())


def object_bytes(call: Call) -> int | None:
    """Bytes of one object of a `reserve_write`; None where the layout is not understood."""
    try:
        layout = msgspec.convert(argument(call, "layout_desc"), _Layout)
    except msgspec.ValidationError:
        return None
    widths = [_DTYPE_BYTES.get(name.removeprefix("torch.")) for name in layout.dtypes]
    if not layout.shapes or len(widths) not in (1, len(layout.shapes)):
        return None
    if len(widths) == 1:
        widths *= len(layout.shapes)
    total = 0
    for width, shape in zip(widths, layout.shapes, strict=True):
        if width is None or len(shape) > 8 or not all(0 < side < 1 << 32 for side in shape):
            return None
        total += width * math.prod(shape)
    return total if total <= _MAX_OBJECT_BYTES else None
