"""The keys of a dataclass of the replay: each field by name, with the unit that its name says.

`lookup_s` is written `lookup = "200us"`, `capacity_bytes` is `capacity = "4TB"`, `bytes_per_s` is
`rate = "400Gb/s"`; counts, shares, switches and words stand as they are. So a field that the replay
gains is a key of the file at once.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, Union, get_args, get_origin, get_type_hints

from kvtrace.scenarios.document import Reader
from kvtrace.units import NS_PER_S, parse_bytes, parse_duration_ns, parse_rate


def parse_seconds(text: str) -> float:
    """Seconds of a text such as `200us`."""
    return parse_duration_ns(text) / NS_PER_S


_UNITS: Final[tuple[tuple[str, str, Callable[[str], float]], ...]] = (
    ("bytes_per_s", "rate", parse_rate),
    ("_bytes", "", parse_bytes),
    ("_s", "", parse_seconds),
)
"""Ending of a field, what stands for it in the key, and how its text is read."""
_SHARES: Final = ("_share", "_watermark")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a file, for one field."""

    key: str
    field: str
    read: Callable[[Reader, str], object]


def keys_of(spec: type, left_out: tuple[str, ...] = ()) -> Mapping[str, Key]:
    """The keys of the plain fields of a dataclass; fields of other dataclasses have none."""
    hints = get_type_hints(spec)
    found = (
        _key(field.name, hints[field.name]) for field in fields(spec) if field.name not in left_out
    )
    return types.MappingProxyType({one.key: one for one in found if one is not None})


def read_fields(reader: Reader, keys: Mapping[str, Key]) -> dict[str, object]:
    """Of these keys, what the table states: field name to value."""
    return {one.field: one.read(reader, key) for key, one in keys.items() if reader.has(key)}


def _key(field: str, hint: object) -> Key | None:
    kind = _without_none(hint)
    if get_origin(kind) is Literal:
        allowed = tuple(str(word) for word in get_args(kind))
        return Key(field, field, lambda reader, key: reader.word(key, allowed))
    if kind is bool:
        return Key(field, field, lambda reader, key: reader.switch(key))
    if kind is int:
        return Key(field, field, lambda reader, key: reader.whole(key))
    if kind is str:
        return Key(field, field, lambda reader, key: reader.word(key))
    if kind is float:
        return _float_key(field)
    if kind == tuple[str, ...]:
        return Key(field, field, lambda reader, key: reader.words(key))
    return None


def _float_key(field: str) -> Key:
    if field.endswith(_SHARES):
        return Key(field, field, lambda reader, key: reader.share(key))
    for ending, name, parse in _UNITS:
        if field.endswith(ending):
            return Key(field.removesuffix(ending) + name, field, _quantity(parse))
    return Key(field, field, lambda reader, key: reader.number(key))


def _quantity(parse: Callable[[str], float]) -> Callable[[Reader, str], object]:
    return lambda reader, key: reader.quantity(key, parse)


def _without_none(hint: object) -> object:
    if get_origin(hint) in (Union, types.UnionType):
        rest = [one for one in get_args(hint) if one is not type(None)]
        return rest[0] if len(rest) == 1 else hint
    return hint
