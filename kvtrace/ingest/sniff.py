"""What a file is, by its content: the head of the decoded stream against every known format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Framing, Guess, Head
from kvtrace.ingest.files.frame import FrameCounts, frame
from kvtrace.ingest.modelnames import is_name
from kvtrace.ingest.tabular import MAX_TABLE_BYTES, table_kind, table_schema
from kvtrace.ingest.textlog.formats import vote
from kvtrace.units import KIB, MIB

HEAD_BYTES: Final = 64 * KIB
MAX_FIRST_RECORD_BYTES: Final = 4 * MIB
"""A first line longer than the usual head is read up to this, so that it can be judged at all."""
THRESHOLD: Final = 0.5
_MAX_OBJECTS: Final = 50
_ARRAY_OF_OBJECTS: Final = re.compile(rb"\s*\[\s*\{")
_FIRST_LINES: Final = re.compile(rb"\s*(\{[^\n]*)\n\s*([^\n]*)")
_GOES_ON: Final = (b"{", b"[", b",", b":")
_UNPACK: Final = "unpack it first and name the files in it"
_EXPORT: Final = "is not read yet; export the rows as JSON lines or CSV"
_FIELD: Final = re.compile(r"[A-Za-z][A-Za-z_.-]{0,31}[0-9]{0,2}(?: [A-Za-z_]{1,16})?")
"""A field as programs name it: a key may be data too."""
_OTHER_KINDS: Final = (
    # (offset, magic bytes, what it is and what to do)
    (257, b"ustar", f"a tar archive; {_UNPACK} (`tar -xf`)"),
    (0, b"PK\x03\x04", f"a zip archive; {_UNPACK} (`unzip`)"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive; {_UNPACK} (`7z x`)"),
    (0, b"Rar!\x1a\x07", f"a RAR archive; {_UNPACK}"),
    (0, b"SQLite format 3\x00", f"a SQLite database; SQLite {_EXPORT}"),
    (0, b"\x89HDF\r\n\x1a\n", f"an HDF5 file; HDF5 {_EXPORT}"),
    (0, b"\x04\x22\x4d\x18", "lz4 data; unpack it first (`lz4 -d`)"),
    (0, b"%PDF-", "a PDF, not a log"),
)
"""Files of other kinds, told by their first bytes after unpacking."""
_PICKLE: Final = re.compile(
    rb"\x80[\x02-\x05][\x00-\xff]|[(}](?:dp0\nV|q\x00\(X\x0b\x00\x00\x00|X\x0b\x00\x00\x00)server_args"
)
"""Protocols 2 to 5 by their mark; SGLang's dumps also in the protocols before, which have none."""
_PICKLE_REFUSED: Final = (
    "a Python pickle, which is a program and is not run; `--allow-inert-pickle` reads the request"
    " dumps of SGLang from it in a process that imports nothing"
)
_KIND_BYTES: Final = 512
"""What telling the kind needs: the magic bytes of tar end at 262."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """The format of a file, or why there is none."""

    format: Format | None
    framing: Framing
    confidence: float
    reason: str


def read_head(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes], bool]:
    """(head, the whole stream again, whether the head is the whole file).

    The head of a table is all of it, up to a limit: its schema is at the end.
    """
    source = iter(chunks)
    taken: list[bytes] = []
    size = 0
    has_line = False
    for chunk in source:
        taken.append(chunk)
        size += len(chunk)
        if table_kind(taken[0]) is not None:
            if size <= MAX_TABLE_BYTES:
                continue
            return b"".join(taken), chain(taken, source), False
        has_line = has_line or b"\n" in chunk.strip()
        if size >= (HEAD_BYTES if has_line else MAX_FIRST_RECORD_BYTES):
            head = b"".join(taken)
            return _whole_lines(head), chain(taken, source), False
    head = b"".join(taken)
    return head, iter((head,) if head else ()), True


def _whole_lines(head: bytes) -> bytes:
    """The first 64 KiB in whole lines; more only as far as the first line needs."""
    if len(head) > HEAD_BYTES:
        first_end = head.find(b"\n", len(head) - len(head.lstrip()))
        head = head[: max(HEAD_BYTES, first_end + 1)]
    end = head.rfind(b"\n", _KIND_BYTES)
    return head[: end + 1] if end > 0 and head[:end].strip() else head


def build_head(data: bytes, path: str) -> Head:
    """What the formats may look at."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = tuple(line.removesuffix("\r") for line in text.split("\n") if line.strip())
    return Head(
        path=path,
        text=text,
        lines=lines,
        json_objects=_json_objects(data),
        csv_header=_csv_header(lines),
    )


def _json_objects(data: bytes) -> tuple[dict[str, object], ...]:
    """First records that are JSON objects: lines, the document, or elements of its first array."""
    is_spread = is_spread_json(data)
    found = () if is_spread else _parsed(data.split(b"\n"))
    if not found and data.lstrip()[:1] in (b"{", b"["):
        found = _parsed(record.data for record in frame((data,), "json", FrameCounts()))
    if not found and is_spread and b"[" in data:  # a document longer than the head: its elements
        elements = data[data.index(b"[") :]
        found = _parsed(record.data for record in frame((elements,), "json", FrameCounts()))
    return found


def is_spread_json(data: bytes) -> bool:
    """Whether these bytes begin an array of objects or an object over several lines.

    An object whose first line is cut is none: then the second line is an object of its own.
    """
    if _ARRAY_OF_OBJECTS.match(data):
        return True
    found = _FIRST_LINES.match(data)
    if found is None or not found[1].rstrip().endswith(_GOES_ON):
        return False
    return _json_object(found[2]) is None


def _parsed(candidates: Iterable[bytes]) -> tuple[dict[str, object], ...]:
    objects = (_json_object(candidate) for candidate in candidates)
    return tuple(islice((entry for entry in objects if entry is not None), _MAX_OBJECTS))


def _json_object(data: bytes) -> dict[str, object] | None:
    if data.lstrip()[:1] != b"{":
        return None
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = json.loads(data)  # accepts NaN and Infinity, which some producers write
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _csv_header(lines: tuple[str, ...]) -> tuple[str, ...]:
    if not lines or "," not in lines[0] or lines[0].lstrip()[:1] in ("{", "["):
        return ()
    try:
        cells = next(csv.reader(io.StringIO(lines[0])))
    except csv.Error:
        return ()
    names = tuple(cell.strip() for cell in cells)
    is_header = all(name and not name[0].isdigit() and len(name) <= 64 for name in names)
    return names if is_header else ()


def recognise(
    data: bytes, path: str, *, formats: Iterable[Format], allow_inert_pickle: bool = False
) -> Recognition:
    """The most confident format for the head of a file, with its reason; never raises.

    Elements of a top-level array are the records even of a format that has one object a line; so is
    an object that is spread over several lines.
    A pickle is offered to the formats of whole documents only, and only if that was allowed.
    """
    if not data:
        return Recognition(None, "lines", 0.0, "the file is empty")
    if table_kind(data) is not None:
        return _recognise_table(data, path, formats)
    kind = _other_kind(data)
    is_pickle = kind is None and _PICKLE.match(data) is not None
    if is_pickle and not allow_inert_pickle:
        kind = _PICKLE_REFUSED
    if kind is not None:
        return Recognition(None, "lines", 0.0, kind)
    if not data.strip(b" \t\r\n\v\f\x00"):
        what = "NUL bytes" if b"\x00" in data else "blank lines"
        return Recognition(None, "lines", 0.0, f"the file has only {what}")
    head = build_head(data, path)
    known = tuple(entry for entry in formats if is_pickle == (entry.framing == "document"))
    guesses = [
        (guess, entry)
        for entry in known
        if entry.dialect is None and (guess := entry.sniff(head)) is not None
    ]
    guesses += vote(head, [entry for entry in known if entry.dialect is not None])
    best = max(guesses, key=lambda pair: pair[0].confidence, default=None)
    if best is None or best[0].confidence < THRESHOLD:
        return Recognition(None, "lines", 0.0, _why_not(data, head, best[0] if best else None))
    guess, entry = best
    framing = entry.framing
    if framing == "lines" and entry.dialect is None and is_spread_json(data):
        framing = "json"
    why = guess.why if entry.distribution is None else f"{guess.why} ({entry.distribution})"
    return Recognition(entry, framing, guess.confidence, why)


def _recognise_table(data: bytes, path: str, formats: Iterable[Format]) -> Recognition:
    """The format of a table by its columns: those of whole documents know tables."""
    kind, schema = table_kind(data), table_schema(data)
    if schema is None:
        what = f"{kind} data that cannot be read: damaged, cut, or past 1 GiB"
        return Recognition(None, "document", 0.0, what)
    head = Head(path, text="", lines=(), json_objects=(), csv_header=tuple(schema))
    for entry in formats:
        guess = entry.sniff(head) if entry.framing == "document" else None
        if guess is not None and guess.confidence >= THRESHOLD:
            return Recognition(entry, entry.framing, guess.confidence, guess.why)
    what = (
        f"a {kind} file of no known format (columns: {_names(schema)});"
        " export the rows as JSON lines or CSV"
    )
    return Recognition(None, "document", 0.0, what)


def _other_kind(data: bytes) -> str | None:
    """What the file is and what to do, if it is an archive, a database or the like."""
    for offset, magic, what in _OTHER_KINDS:
        if data.startswith(magic, offset):
            return what
    return None


def _why_not(data: bytes, head: Head, nearest: Guess | None) -> str:
    if nearest is not None:
        return nearest.why
    if b"\x00" in data[:1024]:
        return "binary data of no known kind"
    if head.json_objects:
        return f"JSON objects of no known format (keys: {_names(sorted(head.json_objects[0]))})"
    if head.csv_header:
        return f"CSV of no known format (columns: {_names(head.csv_header)})"
    return "no known format matches its first lines"


def _names(names: Iterable[str]) -> str:
    """Up to eight names that look like names; anything else may be somebody's text."""
    fitting = [name for name in names if _FIELD.fullmatch(name) and is_name(name)]
    return ", ".join(fitting[:8])
