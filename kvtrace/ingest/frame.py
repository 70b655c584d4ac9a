"""Records of a decoded stream: bounded, counted, with their offset and line.

A record longer than the limit is rejected as `record_too_long` and never held in memory. Blank
records are counted and not delivered. How the stream was cut into chunks changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from kvtrace.ingest.contract import Framing, Record
from kvtrace.units import MIB

MAX_RECORD_BYTES: Final = 16 * MIB


@dataclass(frozen=True, slots=True)
class LongRecord:
    """A record past the limit: where it stood and a hash of it; its bytes are gone."""

    offset: int
    line: int
    byte_length: int
    hashed: hashlib.blake2b


@dataclass(slots=True)
class FrameCounts:
    """What the framer did with the records of one file; complete when its iterator ends."""

    delivered: int = 0
    blank: int = 0
    too_long: list[LongRecord] = field(default_factory=list)
    max_record_bytes: int = MAX_RECORD_BYTES
    new_hash: Callable[[], hashlib.blake2b] = hashlib.blake2b
    """Makes the hash of a record that is too long (keyed with the run's salt)."""

    @property
    def rows_in(self) -> int:
        """All records: delivered, blank and too long."""
        return self.delivered + self.blank + len(self.too_long)


def frame(chunks: Iterable[bytes], framing: Framing, counts: FrameCounts) -> Iterator[Record]:
    """The records of a stream in file order."""
    if framing == "lines":
        return _frame_lines(chunks, counts)
    if framing == "csv":
        return _frame_csv(chunks, counts)
    return _frame_json(chunks, counts)


@dataclass(slots=True)
class _Pending:
    """The start of a record whose end has not been seen, or the length of one that is too long."""

    counts: FrameCounts
    offset: int = 0
    line: int = 1
    length: int = 0
    pieces: list[bytes] = field(default_factory=list)
    hashed: hashlib.blake2b | None = None

    def add(self, piece: bytes) -> None:
        self.length += len(piece)
        self.pieces.append(piece)
        if self.hashed is None and self.length > self.counts.max_record_bytes:
            self.hashed = self.counts.new_hash()
        if self.hashed is not None:
            for kept in self.pieces:
                self.hashed.update(kept)
            self.pieces.clear()

    def take(self) -> bytes | None:
        """The finished record; None when it was too long, which is then counted."""
        data = b"".join(self.pieces) if self.hashed is None else None
        if self.hashed is not None:
            self.counts.too_long.append(
                LongRecord(self.offset, self.line, self.length, self.hashed)
            )
        self.pieces.clear()
        self.length, self.hashed = 0, None
        return data


def _frame_lines(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    for batch in _physical_lines(chunks, counts):
        records = [record for record in batch if record.data and not record.data.isspace()]
        counts.delivered += len(records)
        counts.blank += len(batch) - len(records)
        yield from records


def _physical_lines(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[list[Record]]:
    """Batches of lines without their end (LF or CRLF), blank ones too; the last needs no end."""
    pending = _Pending(counts)
    for chunk in chunks:
        first, *parts = chunk.split(b"\n")
        pending.add(first)
        if not parts:
            continue
        offset, line = pending.offset + pending.length + 1, pending.line + 1
        data = pending.take()
        if data is not None:
            yield _lines_at(pending.offset, pending.line, [data])
        last = parts.pop()
        yield from _within_limit(offset, line, parts, counts)
        pending.offset = offset + sum(map(len, parts)) + len(parts)
        pending.line = line + len(parts)
        pending.add(last)
    if pending.length:
        data = pending.take()
        if data is not None:
            yield [Record(pending.offset, pending.line, data.removesuffix(b"\r"), terminated=False)]


def _lines_at(offset: int, line: int, parts: list[bytes]) -> list[Record]:
    """Consecutive whole lines as records, the first at `offset`."""
    offsets = accumulate(map(len, parts), lambda at, length: at + length + 1, initial=offset)
    if any(part.endswith(b"\r") for part in parts):
        parts = [part.removesuffix(b"\r") for part in parts]
    return list(map(Record, offsets, range(line, line + len(parts)), parts))


def _within_limit(
    offset: int, line: int, parts: list[bytes], counts: FrameCounts
) -> Iterator[list[Record]]:
    """The lines as one batch, unless one of them is past the limit (chunks are mostly smaller)."""
    limit = counts.max_record_bytes
    if not parts or max(map(len, parts)) <= limit:
        yield _lines_at(offset, line, parts)
        return
    for part in parts:
        if len(part) <= limit:
            yield _lines_at(offset, line, [part])
        else:
            hashed = counts.new_hash()
            hashed.update(part)
            counts.too_long.append(LongRecord(offset, line, len(part), hashed))
        offset += len(part) + 1
        line += 1


def _frame_csv(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    """CSV records: lines joined while a quoted field is open.

    A quote inside an unquoted field is text. One that does not close within the limit is taken for
    a stray one: its line stands alone.
    """
    held: list[Record] = []
    held_bytes = 0
    for batch in _physical_lines(chunks, counts):
        for record in batch:
            is_open = _leaves_open(record.data, is_open=bool(held))
            held.append(record)
            held_bytes += len(record.data) + 1
            if not is_open:
                yield from _csv_record(held, counts)
            elif held_bytes > counts.max_record_bytes:
                yield from _unclosed(held, counts)
            else:
                continue
            held, held_bytes = [], 0
    yield from _unclosed(held, counts)


def _csv_record(lines: list[Record], counts: FrameCounts) -> Iterator[Record]:
    first, last = lines[0], lines[-1]
    data = first.data if first is last else b"\n".join(line.data for line in lines)
    if data and not data.isspace():
        counts.delivered += 1
        yield Record(first.offset, first.line, data, terminated=last.terminated)
    else:
        counts.blank += 1


def _unclosed(held: list[Record], counts: FrameCounts) -> Iterator[Record]:
    """The first line alone, the others framed anew; a second unclosed quote frees its lines too."""
    if held:
        yield from _csv_record(held[:1], counts)
    group: list[Record] = []
    for record in held[1:]:
        is_open = _leaves_open(record.data, is_open=bool(group))
        group.append(record)
        if not is_open:
            yield from _csv_record(group, counts)
            group = []
    for record in group:
        yield from _csv_record([record], counts)


def _leaves_open(data: bytes, *, is_open: bool) -> bool:
    """Whether a quoted field is open at the end of a line; quotes open only at a field's start."""
    at = 0
    while True:
        if is_open:
            closed = _QUOTED_REST.match(data, at)
            if closed is None:
                return True
            at = closed.end()
        opened = _QUOTE_OPENS.search(data, at) if b'"' in data else None
        if opened is None:
            return False
        at, is_open = opened.end(), True


_QUOTE_OPENS: Final = re.compile(rb'(?:\A|,)"')
_QUOTED_REST: Final = re.compile(rb'(?:[^"]++|"")*+"')
_BETWEEN: Final = re.compile(rb"[ \t\r\n,]*")
_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT_LIST: Final = rb'\[[^"{}\[\]]*+\]'
_FLAT_OBJECT: Final = rb'\{(?:[^"{}\[\]]++|' + _TEXT + rb"|" + _FLAT_LIST + rb")*+\}"
_STRUCTURE: Final = re.compile(
    _TEXT + rb"|" + _FLAT_LIST + rb"|" + _FLAT_OBJECT + rb'|["{}\[\]]', re.DOTALL
)
"""A whole text, flat list or flat object if this chunk holds it whole, else one structural byte."""
_IN_TEXT: Final = re.compile(rb'["\\]')
_BARE_END_IN_ARRAY: Final = re.compile(rb"[,\]\n]")


@dataclass(slots=True)
class _JsonScanner:
    """Where the scan stands between two chunks; finds where the current value ends."""

    in_array: bool = False
    in_value: bool = False
    is_bare: bool = False
    """A number, a name or junk: it ends at a comma, a bracket or a line end."""
    depth: int = 0
    in_text: bool = False
    escaped: bool = False

    def between(self, chunk: bytes, at: int) -> int:
        """Past spaces, commas and brackets of a top-level array; may start a value."""
        found = _BETWEEN.match(chunk, at)
        at = found.end() if found else at
        mark = chunk[at : at + 1]
        if mark == b"[" and not self.in_array:
            self.in_array = True
            return at + 1
        if mark == b"]" and self.in_array:
            self.in_array = False
            return at + 1
        if mark:
            self.in_value = True
            self.is_bare = mark not in b'{["'
            self.depth, self.in_text, self.escaped = 0, False, False
        return at

    def value_end(self, chunk: bytes, at: int) -> tuple[int, bool]:
        """(position, whether the value ends there) in this chunk."""
        if self.is_bare:
            ends = _BARE_END_IN_ARRAY.search(chunk, at) if self.in_array else None
            end = ends.start() if ends else chunk.find(b"\n", at)
            return (len(chunk), False) if end < 0 else (end, True)
        while at < len(chunk):
            if self.escaped:
                self.escaped = False
                at += 1
                continue
            found = (_IN_TEXT if self.in_text else _STRUCTURE).search(chunk, at)
            if found is None:
                break
            at = found.end()
            if self._closes(found.group()):
                return at, True
        return len(chunk), False

    def _closes(self, mark: bytes) -> bool:
        """Take one structural byte, or one balanced piece, in; whether it ends the value."""
        if len(mark) > 1:
            return self.depth == 0
        if mark == b"\\":
            self.escaped = True
            return False
        if mark == b'"':
            self.in_text = not self.in_text
            return self.depth == 0 and not self.in_text
        self.depth += 1 if mark in b"{[" else -1
        return self.depth <= 0


def _frame_json(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    """Values of a JSON stream: elements of top-level arrays, and whole values outside arrays."""
    scanner = _JsonScanner()
    pending = _Pending(counts)
    start, line = 0, 1
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            before = at
            if not scanner.in_value:
                at = scanner.between(chunk, at)
                line += chunk.count(b"\n", before, at)
                pending.offset, pending.line = start + at, line
                continue
            at, is_done = scanner.value_end(chunk, at)
            pending.add(chunk[before:at])
            line += chunk.count(b"\n", before, at)
            if is_done:
                scanner.in_value = False
                yield from _json_record(pending, counts, terminated=True)
        start += len(chunk)
    if scanner.in_value:
        yield from _json_record(pending, counts, terminated=False)


def _json_record(pending: _Pending, counts: FrameCounts, *, terminated: bool) -> Iterator[Record]:
    data = pending.take()
    if data is not None:
        counts.delivered += 1
        yield Record(pending.offset, pending.line, data.rstrip(), terminated=terminated)
