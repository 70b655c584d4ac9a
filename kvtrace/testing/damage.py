"""Samples that are hurt in the ways in which logs are: the same hurts for the same seed."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from typing import Final

_ODD: Final = (b"NaN", b"-1", b"1e999", b"null", b"9" * 23, b'"', b"{", b"\x00", b"\xff")
_PIECE: Final = 80
_MOST_FIELDS: Final = 40


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _splice(data: bytes, rng: random.Random) -> bytes:
    """A piece taken out of the middle, as the end of a terminal's memory does."""
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, _PIECE) :]


def _flip(data: bytes, rng: random.Random) -> bytes:
    hurt = bytearray(data)
    for _ in range(1 + len(hurt) // 200):
        hurt[rng.randrange(len(hurt))] = rng.randrange(256)
    return bytes(hurt)


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(_ODD) + data[at:]


def _digits(data: bytes, rng: random.Random) -> bytes:
    """One number exchanged for something that is no count."""
    places = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return data
    at = rng.choice(places)
    return data[:at] + rng.choice(_ODD) + data[at + 1 :]


_HURTS: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    _cut, _splice, _flip, _insert, _digits,
)  # fmt: skip


def hurt(data: bytes, rounds: int) -> Iterator[tuple[str, bytes]]:
    """(how, the hurt bytes), so many times each way."""
    for number in range(rounds):
        for how in _HURTS:
            if data:
                yield f"{how.__name__[1:]} {number}", how(data, random.Random(number))  # noqa: S311


def without_a_field(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(field, the sample with that field taken out of every record), for JSON lines and CSV."""
    yield from _json_without(data)
    yield from _csv_without(data)


def _json_without(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Lines that are no JSON objects stay as they are."""
    lines = [(line, _object(line)) for line in data.split(b"\n")]
    names = list(dict.fromkeys(name for _, row in lines for name in row or ()))
    for name in names[:_MOST_FIELDS]:
        kept = (line if row is None else _without(row, name) for line, row in lines)
        yield name, b"\n".join(kept)


def _without(row: dict[str, object], name: str) -> bytes:
    return json.dumps({key: value for key, value in row.items() if key != name}).encode()


def _object(line: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _csv_without(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Cells made blank: the header stays, since the format knows itself by it."""
    if data.lstrip()[:1] in {b"{", b"["} or b"," not in data.split(b"\n", 1)[0]:
        return
    rows = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")))
    header, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    for place, name in enumerate(header[:_MOST_FIELDS]):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([*row[:place], "", *row[place + 1 :]] for row in body)
        yield name, text.getvalue().encode()
