"""Records of a decoded stream: bounded, counted, with their offset and line.

A record longer than the limit is rejected as `record_too_long` and never held in memory. Blank
records are counted and not delivered. How the stream was cut into chunks changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import accumulate
from typing import Final, NamedTuple

from kvtrace.ingest.contract import Framing, Record
from kvtrace.ingest.values.jsonscan import JsonScanner
from kvtrace.units import KIB, MIB

MAX_RECORD_BYTES: Final = 16 * MIB
_STRIPPED_BYTES: Final = 64 * KIB


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
    return _FRAMERS[framing](chunks, counts)


@dataclass(slots=True)
class _Pending:
    """The start of a record whose end has not been seen, or the length of one that is too long.

    A record is held once: a whole piece as it is, several in a buffer that is handed out itself.
    """

    counts: FrameCounts
    offset: int = 0
    line: int = 1
    length: int = 0
    piece: bytes = b""
    buffer: BytesIO | None = None
    hashed: hashlib.blake2b | None = None

    def add(self, piece: bytes) -> None:
        self.length += len(piece)
        if self.hashed is not None:
            self.hashed.update(piece)
        elif self.length > self.counts.max_record_bytes:
            self.hashed = self.counts.new_hash()
            self.hashed.update(self._held())
            self.hashed.update(piece)
        elif self.buffer is not None:
            self.buffer.write(piece)
        elif self.piece:
            self.buffer = BytesIO()
            self.buffer.write(self.piece)
            self.buffer.write(piece)
            self.piece = b""
        else:
            self.piece = piece

    def take(self, *, strip: bytes = b"") -> bytes | None:
        """The finished record without the bytes of `strip` at its end.

        None when it was too long, which is then counted.
        """
        data = None
        if self.hashed is None:
            if self.buffer is not None and strip:
                _strip_end(self.buffer, strip)
            data = self._held()
            if strip and data[-1:] in strip:
                data = data.rstrip(strip)
        else:
            self.counts.too_long.append(
                LongRecord(self.offset, self.line, self.length, self.hashed)
            )
        self.length, self.hashed = 0, None
        return data

    def _held(self) -> bytes:
        """What is held, no longer held here."""
        data = self.piece if self.buffer is None else self.buffer.getvalue()
        self.piece, self.buffer = b"", None
        return data


def _strip_end(buffer: BytesIO, strip: bytes) -> None:
    """Take bytes of `strip` off the end without a copy of what is before them."""
    size = buffer.tell()
    while size:
        start = max(size - _STRIPPED_BYTES, 0)
        buffer.seek(start)
        kept = len(buffer.read(size - start).rstrip(strip))
        size = start + kept
        if kept:
            break
    buffer.truncate(size)


class LineBlock(NamedTuple):
    """Consecutive whole lines of a stream, none of them past the limit."""

    offset: int
    line: int
    """Number of the first line, from 1."""
    data: bytes
    """Lines with their ends, LF or CRLF; only a block of one line, the stream's last, has none."""


def line_blocks(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[LineBlock]:
    """The lines of a stream in blocks of about a chunk; too long ones are counted and left out."""
    pending = _Pending(counts)
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end:
            pending.add(chunk)
            continue
        start = 0
        first = chunk.index(b"\n") if pending.length else 0
        if pending.length + first > counts.max_record_bytes:
            pending.add(chunk[:first])
            start, length = first + 1, pending.length + 1
            pending.take()
            pending.offset, pending.line = pending.offset + length, pending.line + 1
        held = pending.take() if pending.length else None
        data = chunk[start:end] if held is None else held + chunk[:end]
        if data:
            yield from _within_limit(LineBlock(pending.offset, pending.line, data), counts)
        pending.offset, pending.line = pending.offset + len(data), pending.line + data.count(b"\n")
        pending.add(chunk[end:])
    if pending.length:
        data = pending.take() or b""
        if data:
            yield LineBlock(pending.offset, pending.line, data)


def _within_limit(block: LineBlock, counts: FrameCounts) -> Iterator[LineBlock]:
    """The block, unless it may hold a line past the limit: then line by line."""
    limit = counts.max_record_bytes
    if len(block.data) <= limit:  # as nearly all are
        yield block
        return
    offset, line = block.offset, block.line
    for part in block.data[:-1].split(b"\n"):
        if len(part) <= limit:
            yield LineBlock(offset, line, part + b"\n")
        else:
            hashed = counts.new_hash()
            hashed.update(part)
            counts.too_long.append(LongRecord(offset, line, len(part), hashed))
        offset, line = offset + len(part) + 1, line + 1


def _frame_lines(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    for block in line_blocks(chunks, counts):
        yield from block_records(block, counts)


def line_record(
    block: LineBlock, start: int, end: int, lines: int, counts: FrameCounts
) -> Record | None:
    """The line of the block between two places, `lines` lines behind its first; None if blank."""
    data = block.data[start:end]
    is_whole = data.endswith(b"\n")
    data = data[:-1].removesuffix(b"\r") if is_whole else data.removesuffix(b"\r")
    if not data or data.isspace():
        counts.blank += 1
        return None
    counts.delivered += 1
    return Record(block.offset + start, block.line + lines, data, terminated=is_whole)


def block_records(block: LineBlock, counts: FrameCounts) -> list[Record]:
    """The lines that are not blank, without their ends; counts both."""
    lines = _physical_lines(block)
    records = [record for record in lines if record.data and not record.data.isspace()]
    counts.delivered += len(records)
    counts.blank += len(lines) - len(records)
    return records


def _physical_lines(block: LineBlock) -> list[Record]:
    """All lines of the block, without their ends."""
    offset, line, data = block
    parts = data.split(b"\n")
    if parts[-1]:
        return [Record(offset, line, data.removesuffix(b"\r"), terminated=False)]
    parts.pop()
    offsets = accumulate(map(len, parts), lambda at, length: at + length + 1, initial=offset)
    if b"\r\n" in data:
        parts = [part.removesuffix(b"\r") for part in parts]
    return list(map(Record, offsets, range(line, line + len(parts)), parts))


def _frame_csv(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    """CSV records: lines joined while a quoted field is open.

    A quote inside an unquoted field is text. One that does not close within the limit is taken for
    a stray one: its line stands alone.
    """
    held: list[Record] = []
    held_bytes = 0
    for block in line_blocks(chunks, counts):
        for record in _physical_lines(block):
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
_JSON_GAP: Final = b" \t\r\n,"


def _frame_json(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    """Values of a JSON stream: elements of top-level arrays, and whole values outside arrays."""
    scanner = JsonScanner()
    pending = _Pending(counts)
    start, line = 0, 1
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            before = at
            if scanner.value is None:
                at = scanner.between(chunk, at)
                line += chunk.count(b"\n", before, at)
                pending.offset, pending.line = start + at, line
                continue
            at, is_done = scanner.value_end(chunk, at)
            pending.add(chunk[before:at])
            line += chunk.count(b"\n", before, at)
            if is_done:
                scanner.value = None
                data = pending.take(strip=_JSON_GAP)
                if data is not None:
                    counts.delivered += 1
                    yield Record(pending.offset, pending.line, data)
        start += len(chunk)
    data = pending.take(strip=_JSON_GAP) if scanner.value is not None else None
    if data is not None:
        counts.delivered += 1
        yield Record(pending.offset, pending.line, data, terminated=False)


def _frame_document(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    """The whole stream as one record; nothing of an empty one."""
    pending = _Pending(counts)
    for chunk in chunks:
        pending.add(chunk)
    if not pending.length:
        return
    data = pending.take()
    if data is not None and data.isspace():
        counts.blank += 1
    elif data is not None:
        counts.delivered += 1
        yield Record(0, 1, data)


def _frame_frames(chunks: Iterable[bytes], counts: FrameCounts) -> Iterator[Record]:
    """Frames of a 4-byte big-endian length and as many bytes; `line` is the frame's number from 1.

    The offset is that of the length. A frame of no bytes is blank; the last one may be cut, in its
    bytes or in its length.
    """
    pending = _Pending(counts)
    head = b""
    missing = 0
    """Bytes of the frame that are still to come; counted once its length is whole."""
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            if len(head) < _LENGTH_BYTES:
                piece = chunk[at : at + _LENGTH_BYTES - len(head)]
                head += piece
                at += len(piece)
                if len(head) < _LENGTH_BYTES:
                    continue
                missing = int.from_bytes(head, "big")
            piece = chunk[at : at + missing]
            pending.add(piece)
            at += len(piece)
            missing -= len(piece)
            if missing:
                continue
            size = _LENGTH_BYTES + pending.length
            yield from _whole_frame(pending, counts)
            pending.offset += size
            pending.line += 1
            head = b""
    if head:
        if len(head) < _LENGTH_BYTES:
            pending.add(head)
        yield from _cut_frame(pending, counts)


def _whole_frame(pending: _Pending, counts: FrameCounts) -> Iterator[Record]:
    data = pending.take()
    if data is None:
        return
    if data:
        counts.delivered += 1
        yield Record(pending.offset, pending.line, data)
    else:
        counts.blank += 1


def _cut_frame(pending: _Pending, counts: FrameCounts) -> Iterator[Record]:
    data = pending.take()
    if data is not None:
        counts.delivered += 1
        yield Record(pending.offset, pending.line, data, terminated=False)


_LENGTH_BYTES: Final = 4
_FRAMERS: Final[dict[Framing, Callable[[Iterable[bytes], FrameCounts], Iterator[Record]]]] = {
    "lines": _frame_lines,
    "csv": _frame_csv,
    "json": _frame_json,
    "frames": _frame_frames,
    "document": _frame_document,
}
