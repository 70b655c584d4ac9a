"""Values of JSON fields whose type differs from version to version: a number, its text, or absent.

Fields are declared as `msgspec.Raw`, so that the digits are still those of the file.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final, TypeVar

import msgspec

from kvtrace.ingest.values.jsonfields import decode_json

NO_VALUE: Final = msgspec.Raw(b"")
_ABSENT: Final = ("", "-", "null")
_MAX_CHARS: Final = 64
_FLAGS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_TEXT: Final = msgspec.json.Decoder(str)

ShapeT = TypeVar("ShapeT")


def raw_text(value: msgspec.Raw) -> str | None:
    """The text of a JSON string or number; None if it is absent, null, empty, `-`, or an object."""
    data = bytes(value)
    if data[:1] in (b"{", b"["):
        return None
    text = _TEXT.decode(data) if data[:1] == b'"' else data.decode("ascii", "replace")
    text = text.strip()
    return None if text in _ABSENT else text


def raw_decimal(name: str, value: msgspec.Raw) -> Decimal | None:
    """The number, exact; None if it is absent.

    Raises:
        msgspec.ValidationError: it is something else, or not finite.
    """
    text = raw_text(value)
    return None if text is None else decimal_of(name, text)


def decimal_of(name: str, text: str) -> Decimal:
    """The number in a text, exact.

    Raises:
        msgspec.ValidationError: it is something else, or not finite.
    """
    number = None
    if text.isascii() and len(text) <= _MAX_CHARS:
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = None
    if number is None or not number.is_finite():
        raise msgspec.ValidationError(f"`{name}` is not a number")
    return number


def raw_flag(value: msgspec.Raw) -> bool | None:
    """A truth value, its text in any case, or 1 and 0; None if it is anything else."""
    text = raw_text(value)
    return None if text is None else flag_of(text)


def flag_of(text: str) -> bool | None:
    """The truth value that a text writes; None if it is none."""
    return _FLAGS.get(text.strip().lower())


def id_of(value: object) -> str | None:
    """An id that is a text or a whole number; None where it is absent."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = value.strip() if isinstance(value, str) else ""
    return None if text in _ABSENT else text


def name_of(value: object) -> str | None:
    """A name that is a text; None where it is absent."""
    return id_of(value) if isinstance(value, str) else None


def nested(decoder: msgspec.json.Decoder[ShapeT], value: msgspec.Raw) -> ShapeT | None:
    """An object (or list), or one inside a JSON string; None if it is anything else."""
    data = bytes(value)
    if data[:1] not in (b"{", b"[", b'"'):
        return None
    try:
        if data[:1] == b'"':
            data = _TEXT.decode(data).encode()
        return decode_json(decoder, data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
