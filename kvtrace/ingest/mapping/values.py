"""Values of records at the places that a mapping names: JSON to any depth, and CSV cells.

Every value is its text, or None where it is absent: a number by the digits of the file, a list or
an object as JSON. An object may also stand as JSON inside a text, as log collectors write it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kvtrace.ingest.files.frame import MAX_RECORD_BYTES
from kvtrace.ingest.mapping.spec import FieldRef
from kvtrace.ingest.values.cells import BadCellError, split_cells
from kvtrace.ingest.values.jsonfields import decode_json

Keys = tuple[str, ...]
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_MAX_STEPS: Final = 200
"""How many readings of a dotted path are tried: each point may be in a key or between two."""


class _Node:
    """A key on the way to mapped fields."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.children: dict[str, _Node] = {}


class Places:
    """Where the values stand; `json_values` and `cell_values` give them in the same order."""

    def __init__(self, paths: Sequence[Keys]) -> None:
        self._count = len(paths)
        self._root = _Node()
        for slot, keys in enumerate(paths):
            node = self._root
            for key in keys:
                node = node.children.setdefault(key, _Node())
            node.slots.append(slot)

    def json_values(self, data: bytes) -> list[str | None]:
        """The values of one JSON object.

        Raises:
            msgspec.DecodeError: it is no JSON object.
        """
        found: list[str | None] = [None] * self._count
        held = decode_json(_OBJECT, data)
        self._take(self._root, held, found)
        return found

    def cell_values(self, cells: Mapping[str, str]) -> list[str | None]:
        """The values of one CSV row; a cell may hold JSON."""
        found: list[str | None] = [None] * self._count
        for key, child in self._root.children.items():
            text = cells.get(key)
            if text is None:
                continue
            for slot in child.slots:
                found[slot] = text
            if child.children:
                self._inner(child, text.encode("utf-8", "surrogatepass"), found)
        return found

    def _take(self, node: _Node, held: Mapping[str, msgspec.Raw], found: list[str | None]) -> None:
        for key, child in node.children.items():
            raw = held.get(key)
            if raw is None:
                continue
            data = bytes(raw)
            if child.slots:
                text = _text_of(data)
                for slot in child.slots:
                    found[slot] = text
            if child.children:
                self._inner(child, data, found)

    def _inner(self, node: _Node, data: bytes, found: list[str | None]) -> None:
        held = _held(data)
        if held is not None:
            self._take(node, held, found)


def _held(data: bytes) -> Mapping[str, msgspec.Raw] | None:
    """The values inside an object or a list, the latter by position; None if it is neither.

    Either may stand in a JSON text, as JSON.
    """
    try:
        if data[:1] == b'"':
            data = _TEXT.decode(data).encode()
        start = data.lstrip()[:1]
        if start == b"[":
            items = decode_json(_LIST, data)
            return {str(at): raw for at, raw in enumerate(items)}
        if start != b"{":
            return None
        held = decode_json(_OBJECT, data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return held


def _text_of(data: bytes) -> str | None:
    if data == b"null":
        return None
    return _TEXT.decode(data) if data[:1] == b'"' else data.decode("utf-8", "replace")


def record_list(data: bytes, keys: Keys) -> list[bytes] | None:
    """The elements of the list at these keys of a document, as JSON; None if there is none.

    Raises:
        msgspec.DecodeError: the document is no JSON object.
    """
    text = Places([keys]).json_values(data)[0]
    if text is None or text.lstrip()[:1] != "[":
        return None
    try:
        items = decode_json(_LIST, text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return [bytes(item) for item in items]


def split_row(data: bytes, delimiter: str) -> list[str]:
    """The stripped cells of one CSV record.

    Raises:
        BadCellError: its quotes do not match.
    """
    if delimiter == ",":
        return split_cells(data)
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff")
    if '"' not in text:
        return [cell.strip() for cell in text.split(delimiter)]
    csv.field_size_limit(MAX_RECORD_BYTES)
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter, strict=True))]
    except (csv.Error, StopIteration) as cause:
        raise BadCellError("invalid_csv", "quotes do not match") from cause


def resolve(ref: FieldRef, examples: Sequence[Mapping[str, object]]) -> tuple[Keys, bool]:
    """(the keys that a field means in these records, whether any of them has it).

    A point in a path may also stand in a key: the first record that has one reading decides.
    """
    for example in examples:
        found = _reading(ref, example)
        if found is not None:
            return found, True
    return ref.keys, False


def _reading(ref: FieldRef, example: object) -> Keys | None:
    if ref.is_literal:
        return ref.keys if _has(example, ref.keys) else None
    steps = [_MAX_STEPS]
    return _read(list(ref.keys), example, steps)


def _read(parts: list[str], value: object, steps: list[int]) -> Keys | None:
    """The fewest keys first: a whole name that is a key is meant before a path of its parts."""
    if not parts:
        return ()
    held = opened(value)
    for length in range(len(parts), 0, -1):
        steps[0] -= 1
        if steps[0] < 0:
            return None
        key = ".".join(parts[:length])
        if key in held:
            rest = _read(parts[length:], held[key], steps)
            if rest is not None:
                return (key, *rest)
    return None


def _has(value: object, keys: Keys) -> bool:
    for key in keys:
        held = opened(value)
        if key not in held:
            return False
        value = held[key]
    return True


def opened(value: object) -> Mapping[str, object]:
    """What is inside an object, a list, or a text that holds one as JSON; else nothing."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return {str(at): item for at, item in enumerate(value)}
    return {}
