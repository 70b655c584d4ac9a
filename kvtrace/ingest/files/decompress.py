"""Decoded bytes of a file as a stream of bounded chunks, whatever packed it.

Packing is told by magic bytes, never by the name. Members and frames that follow each other are
all read. An archive that ends early gives what can be decoded and says so. A small archive that
unpacks to a huge file costs time, never memory: each call of a decompressor has an output limit.
"""

from __future__ import annotations

import bz2
import codecs
import hashlib
import lzma
import sys
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal, Protocol

from kvtrace.units import KIB, MIB

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

Compression = Literal["none", "gzip", "zstd", "bz2", "xz"]

READ_BYTES: Final = 256 * KIB
CHUNK_BYTES: Final = MIB
"""No chunk is longer than this (transcoding from UTF-16 may add half)."""
_XZ_MEMORY_BYTES: Final = 256 * MIB
_MAGIC: Final[tuple[tuple[bytes, Compression], ...]] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
)
_BOMS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def detect_compression(head: bytes) -> Compression:
    """What packed a file, by its first bytes."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18":
        return "zstd"  # a skippable frame comes first
    return "none"


class _Decoder(Protocol):
    """One member or frame, as the decompressors of the standard library have it."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


class _GzipMember:
    """One gzip member; zlib keeps its rest in another attribute than bz2, lzma and zstd do."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self._rest = b""
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        decoded = self._inflate.decompress(self._rest + data, max_length)
        self._rest = self._inflate.unconsumed_tail
        self.needs_input = not self._rest and len(decoded) < max_length
        return decoded


def _new_decoder(compression: Compression) -> _Decoder:
    if compression == "gzip":
        return _GzipMember()
    if compression == "bz2":
        return bz2.BZ2Decompressor()
    if compression == "xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
    return ZstdDecompressor()  # the library's window limit, 128 MiB, stays


class DecodedStream:
    """Iterate once for the decoded chunks; then read what happened from the attributes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._digest = hashlib.blake2b(digest_size=16)
        self.compression: Compression = "none"
        self.encoding = "utf-8"
        self.read_bytes = 0
        """Bytes taken from the file so far, still packed."""
        self.trouble: tuple[str, str] | None = None
        """Code and sentence when the file could not be read to its end, or is cut or damaged."""

    @property
    def content_digest(self) -> str:
        """BLAKE2b-128 of the unpacked bytes that were read."""
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        return self._transcoded(self._digested())

    def _read(self) -> bytes:
        try:
            data = self._raw.read(READ_BYTES)
        except OSError as error:
            message = f"reading stopped ({error.strerror or error}); what came before is kept"
            self.trouble = ("read_error", message)
            return b""
        self.read_bytes += len(data)
        return data

    def _digested(self) -> Iterator[bytes]:
        head = self._read()
        self.compression = detect_compression(head)
        source = self._plain(head) if self.compression == "none" else self._unpacked(head)
        for chunk in source:
            self._digest.update(chunk)
            yield chunk

    def _plain(self, head: bytes) -> Iterator[bytes]:
        while head:
            yield head
            head = self._read()

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        """Chunks of all members; `trouble` is set where the archive ends early or is damaged."""
        decoder = _new_decoder(self.compression)
        try:
            while True:
                decoded = decoder.decompress(data, CHUNK_BYTES)
                if decoded:
                    yield decoded
                if decoder.eof:
                    data = decoder.unused_data or self._read()
                    data = self._next_member(data)
                    if not data:
                        return
                    decoder = _new_decoder(self.compression)
                elif decoder.needs_input:
                    data = self._read()
                    if not data:
                        self.trouble = self.trouble or ("truncated_archive", self._cut())
                        return
                else:
                    data = b""
        except (zlib.error, lzma.LZMAError, ZstdError, OSError, EOFError) as error:
            message = f"the {self.compression} data is damaged ({error}); what came before is kept"
            self.trouble = ("damaged_archive", message)

    def _cut(self) -> str:
        return f"the {self.compression} data ends early; what could be unpacked is kept"

    def _next_member(self, data: bytes) -> bytes:
        """The start of the next member; padding is skipped, other bytes end the file."""
        while True:
            data = data.lstrip(b"\x00")
            if len(data) >= 6:
                break
            more = self._read()
            if not more:
                break
            data += more
        if not data or detect_compression(data) == self.compression:
            return data
        message = f"bytes after the end of the {self.compression} data were not read"
        self.trouble = ("trailing_bytes", message)
        return b""

    def _transcoded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The chunks as UTF-8 without a byte order mark."""
        first = b""
        for chunk in chunks:
            first += chunk
            if len(first) >= 4:
                break
        for mark, encoding in _BOMS:
            if first.startswith(mark):
                self.encoding = encoding
                first = first[len(mark) :]
                break
        if self.encoding == "utf-8":
            if first:
                yield first
            yield from chunks
            return
        decoder = codecs.getincrementaldecoder(self.encoding)(errors="replace")
        yield decoder.decode(first).encode()
        for chunk in chunks:
            yield decoder.decode(chunk).encode()
        last = decoder.decode(b"", final=True).encode()
        if last:
            yield last
