"""Logs with canaries in every place that their format lets pass, and the search for them.

A canary is a text that names a person, a prompt, a key or a host. Planting works on the literal
bytes of a fixture: every string of JSON, every cell of CSV, every quoted text, id, address and many
words of a text log, in turn. What a reader makes of it does not matter: nothing of it may come out.
"""

from __future__ import annotations

import base64
import csv
import functools
import io
import json
import pickletools
import random
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import msgspec
import polars as pl

CANARIES: Final = (
    "Please tell the Quokkasecret family that the marmalade ledger is wrong",
    "sk-proj-quokkasecretT4kVw2LmNp8sB3xYz",
    "quokkasecret.person@marmalade.example",
    "gpu-quokkasecret-17.marmalade.internal",
    "203.0.113.177",
    "203.0.113.177:50122",
    "https://marmalade.example/v1/quokkasecret?token=marmalade",
    "/home/quokkasecret/marmalade/notes.py",
    "C:\\Users\\quokkasecret\\marmalade\\notes.py",
    "Größenwahn クオッカ秘密 мармеладный",
)
FRAGMENTS: Final = (
    "quokkasecret",
    "marmalade",
    "203.0.113.177",
    "größenwahn",
    "Größenwahn",
    "クオッカ秘密",
    "мармеладный",
)
"""A piece of each canary that is in no log by chance."""
USER: Final = "uq88421x"
_USER_FOUND: Final = re.compile(USER + r"[0-9]{4}")
_COPIES: Final = 50
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9.-]{2,}")
_QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_ADDRESS: Final = re.compile(r"\d+\.\d+\.\d+\.\d+(?::\d+)?|https?://[^\s\"']+")
_ID: Final = re.compile(r"[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\b[a-z]+-[0-9a-f]{6,}\b")
_WORDS_A_LINE: Final = 4
_MOST_DOCUMENTS: Final = 80
_MOST_LINES: Final = 6_000
Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


class Planter:
    """Plants the canaries in turn, and a user id that is another one each time."""

    def __init__(self) -> None:
        self._number = 0

    def canaries(self) -> tuple[str, ...]:
        """All of them, for one place."""
        return (*CANARIES, self._user())

    def next(self) -> str:
        """The next one in turn."""
        self._number += 1
        at = self._number % (len(CANARIES) + 1)
        return CANARIES[at] if at < len(CANARIES) else self._user()

    def _user(self) -> str:
        self._number += 1
        return f"{USER}{self._number % 10_000:04d}"


def planted(path: Path, data: bytes) -> list[tuple[str, bytes]]:
    """(file name, bytes) of what a fixture becomes; the first of them holds it unchanged too."""
    planter, name = Planter(), path.name
    if data.startswith((b"PAR1", b"ARROW1")):
        return _tables(name, data, planter)
    if path.suffix == ".pkl":
        return [(f"{at}-{name}", one) for at, one in enumerate(_pickles(data, planter))]
    if path.suffix == ".lct":
        return [(name, _frames(data, planter))]
    text = data.decode("utf-8", "replace")
    document = _parsed(text)
    if isinstance(document, dict | list) and "\n" in text.strip():
        made = [text, *map(_dumped, _variants(document, planter, each=False))]
        return [(f"{at}-{name}", one.encode()) for at, one in enumerate(made[:_MOST_DOCUMENTS])]
    if path.suffix == ".csv":
        return [(name, _csv(text, planter).encode())]
    return [(name, _lines(text, planter).encode())]


def _parsed(text: str) -> Json:
    try:
        return cast("Json", json.loads(text))
    except ValueError:
        return None


def _dumped(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(text: str, planter: Planter) -> str:
    """The lines as they are, often enough to be known again, and each of them planted."""
    lines = text.splitlines()
    known = lines * max(1, _COPIES // max(len(lines), 1))
    made: list[str] = []
    seen: set[str] = set()
    rng = random.Random(text)
    for line in lines:
        record = _parsed(line)
        if isinstance(record, dict | list):
            made += map(_dumped, _variants(record, planter, each=True, seen=seen))
        else:
            made += _text_variants(line, planter, rng)
    rng.shuffle(made)
    return "\n".join([*known, *made[:_MOST_LINES], *planter.canaries(), ""])


def _text_variants(line: str, planter: Planter, rng: random.Random) -> Iterator[str]:
    """A line of text with canaries in its quoted texts, ids and addresses, and for some words."""
    for kind in (_QUOTED, _ADDRESS, _ID):
        for match in kind.finditer(line):
            inner = f"{match[0][0]}%s{match[0][0]}" if kind is _QUOTED else "%s"
            for canary in planter.canaries() if kind is _QUOTED else (planter.next(),):
                yield line[: match.start()] + inner.replace("%s", canary) + line[match.end() :]
    words = list(_WORD.finditer(line))
    for match in rng.sample(words, min(_WORDS_A_LINE, len(words))):
        yield line[: match.start()] + planter.next() + line[match.end() :]
    yield f"{line} {planter.next()}"
    yield f"{planter.next()} {line}"


def _variants(
    record: Json, planter: Planter, *, each: bool, seen: set[str] | None = None
) -> Iterator[Json]:
    """The record with a canary in one place each; `each`: all canaries, else one in turn."""
    yield _with_extra_keys(record, planter)
    shapes = set() if seen is None else seen
    for path in _paths(record):
        shape = ".".join("#" if isinstance(part, int) else part for part in path)
        if shape in shapes:
            continue
        shapes.add(shape)
        value = _at(record, path)
        canaries = planter.canaries() if each else (planter.next(),)
        if isinstance(value, str):
            inner = _parsed(value)
            if isinstance(inner, dict | list):
                for variant in _variants(inner, planter, each=False):
                    yield _replaced(record, path, _dumped(variant))
            for canary in canaries:
                yield _replaced(record, path, canary)
            yield _replaced(record, path, f"{value} {planter.next()}")
        elif not isinstance(value, dict | list):
            yield _replaced(record, path, planter.next())
            yield _replaced(record, path, [planter.next()])
        if isinstance(path[-1], str):
            yield _renamed(record, path, planter.next())


def _paths(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    items: list[tuple[str | int, Json]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:3]))
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _at(value: Json, path: tuple[str | int, ...]) -> Json:
    for part in path:
        value = value[part]  # type: ignore[index]
    return value


def _copy(value: Json) -> Json:
    return cast("Json", json.loads(json.dumps(value)))


def _replaced(record: Json, path: tuple[str | int, ...], value: Json) -> Json:
    copy = _copy(record)
    _at(copy, path[:-1])[path[-1]] = value  # type: ignore[index]
    return copy


def _renamed(record: Json, path: tuple[str | int, ...], name: str) -> Json:
    copy = _copy(record)
    holder = cast("dict[str, Json]", _at(copy, path[:-1]))
    holder[name] = holder.pop(cast("str", path[-1]))
    return copy


def _with_extra_keys(value: Json, planter: Planter) -> Json:
    if isinstance(value, dict):
        extra: Json = {planter.next(): planter.next(), "note": planter.next()}
        return {
            **{key: _with_extra_keys(inner, planter) for key, inner in value.items()},
            planter.next(): planter.next(),
            "remark": extra,
        }
    if isinstance(value, list):
        return [_with_extra_keys(inner, planter) for inner in value]
    return value


def _csv(text: str, planter: Planter) -> str:
    """The table as it is, and its rows with each cell planted."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    made = list(rows)
    for row in rows[:6]:
        for column in range(len(row)):
            made += [[*row[:column], canary, *row[column + 1 :]] for canary in planter.canaries()]
    made.append([planter.next() for _ in rows[0]])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(made)
    return out.getvalue()


def _tables(name: str, data: bytes, planter: Planter) -> list[tuple[str, bytes]]:
    """The table with each of its text columns planted."""
    is_parquet = data.startswith(b"PAR1")
    read = pl.read_parquet if is_parquet else pl.read_ipc
    frame = read(io.BytesIO(data))
    made = [frame]
    for column, dtype in frame.schema.items():
        if dtype == pl.String:
            texts = pl.Series(column, [planter.next() for _ in range(len(frame))])
            made.append(frame.with_columns(texts))
    made.append(frame.with_columns(pl.lit(planter.next()).alias(planter.next())))
    files = []
    for at, one in enumerate(made):
        out = io.BytesIO()
        one.write_parquet(out) if is_parquet else one.write_ipc(out)
        files.append((f"{at}-{name}", out.getvalue()))
    return files


def _pickles(data: bytes, planter: Planter) -> Iterator[bytes]:
    """The pickle with each of its strings replaced in turn; its frames are left out."""
    yield data
    ops = list(pickletools.genops(data))
    starts = [cast("int", place) for _op, _argument, place in ops]
    texts = [at for at, (op, *_) in enumerate(ops) if op.name == "SHORT_BINUNICODE"]
    for wanted in texts:
        pieces = []
        for at, (op, _argument, _place) in enumerate(ops):
            end = starts[at + 1] if at + 1 < len(ops) else len(data)
            if op.name == "FRAME":
                continue
            piece = data[starts[at] : end]
            if at == wanted:
                text = planter.next().encode()
                piece = b"\x8c" + bytes([len(text)]) + text
            pieces.append(piece)
        yield b"".join(pieces)


def _frames(data: bytes, planter: Planter) -> bytes:
    """MessagePack frames as they are, and each with its strings planted."""
    frames: list[bytes] = []
    at = 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        frames.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    made = list(frames)
    for frame in frames[1:]:
        try:
            record = msgspec.msgpack.decode(frame)
        except msgspec.DecodeError:
            continue
        for path in _paths(record):
            if isinstance(_at(record, path), str):
                copy = msgspec.msgpack.decode(frame)
                _at(copy, path[:-1])[path[-1]] = planter.next()  # type: ignore[index]
                made.append(msgspec.msgpack.encode(copy))
    return b"".join(len(one).to_bytes(4, "big") + one for one in made)


# The search


def _base64_forms(data: bytes) -> Iterator[str]:
    """What the bytes look like inside Base64 at each of its three places."""
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + data).decode()
        start = (0, 2, 3)[shift]
        yield coded[start : len(coded) - 4]


@functools.cache
def _forms() -> re.Pattern[str]:
    forms: set[str] = set()
    for fragment in FRAGMENTS:
        data = fragment.encode()
        forms |= {
            fragment.casefold(),
            data.hex(),
            urllib.parse.quote(fragment, safe="").casefold(),
            json.dumps(fragment)[1:-1].casefold(),
            "".join(f"%{byte:02x}" for byte in data),
            "".join(f"\\x{byte:02x}" for byte in data),
            *(form.casefold() for form in _base64_forms(data) if len(form) >= 8),
        }
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def found_in(text: str) -> list[str]:
    """The canaries in a text, in any of their forms, with what stands around them."""
    folded = text.casefold()
    return [
        folded[max(0, match.start() - 60) : match.end() + 30] for match in _forms().finditer(folded)
    ][:3]


def users_in(text: str) -> set[str]:
    """The user ids in a text, in any case."""
    return set(_USER_FOUND.findall(text.casefold()))


def written_texts(folder: Path) -> dict[str, str]:
    """Every file that a run wrote, as text; Parquet decompressed."""
    texts: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            texts[name] = pl.read_parquet(path).write_ndjson()
        elif path.is_file():
            texts[name] = path.read_bytes().decode("utf-8", "replace")
    return texts
