"""Unpacking: by magic bytes, all members, truncated archives, bounded chunks, encodings."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
from collections.abc import Callable

import pytest

from kvtrace.ingest.files.decompress import (
    CHUNK_BYTES,
    READ_BYTES,
    DecodedStream,
    detect_compression,
)
from tests import zstd

TEXT = b"".join(b"line %d\n" % number for number in range(1000))
SKIPPABLE = (0x184D2A50).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"abcd"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def unpacked(data: bytes) -> tuple[bytes, DecodedStream]:
    stream = DecodedStream(io.BytesIO(data))
    return b"".join(stream), stream


@pytest.mark.parametrize("kind", PACKERS)
def test_packing_is_told_by_magic_bytes_and_all_members_are_read(kind: str) -> None:
    pack = PACKERS[kind]
    content, stream = unpacked(pack(TEXT) + pack(b"more\n"))
    assert content == TEXT + b"more\n"
    assert stream.compression == kind
    assert stream.trouble is None


@pytest.mark.parametrize("kind", PACKERS)
def test_digest_is_of_the_content_not_of_the_packing(kind: str) -> None:
    _content, stream = unpacked(PACKERS[kind](TEXT))
    assert stream.content_digest == hashlib.blake2b(TEXT, digest_size=16).hexdigest()


@pytest.mark.parametrize("kind", PACKERS)
def test_cut_archive_gives_what_can_be_unpacked_and_says_so(kind: str) -> None:
    noise = b"".join(hashlib.blake2b(b"%d" % n).hexdigest().encode() + b"\n" for n in range(20_000))
    packed = PACKERS[kind](noise)
    content, stream = unpacked(packed[: len(packed) * 3 // 4])
    assert noise.startswith(content)
    assert len(content) > 0
    assert stream.trouble is not None
    assert stream.trouble[0] == "truncated_archive"


@pytest.mark.parametrize("kind", ["gzip", "bz2", "xz"])
def test_damaged_archive_keeps_what_came_before(kind: str) -> None:
    packed = bytearray(PACKERS[kind](TEXT))
    packed[-6] ^= 0xFF  # inside the check sum or the index
    content, stream = unpacked(bytes(packed))
    assert TEXT.startswith(content)
    assert stream.trouble is not None
    assert stream.trouble[0] == "damaged_archive"


def test_skippable_zstd_frames_are_skipped() -> None:
    content, stream = unpacked(
        SKIPPABLE + zstd.compress(b"a\n") + SKIPPABLE + zstd.compress(b"b\n")
    )
    assert content == b"a\nb\n"
    assert stream.trouble is None


def test_padding_after_a_member_is_skipped_and_other_bytes_are_noted() -> None:
    assert unpacked(gzip.compress(b"a\n") + bytes(512))[0] == b"a\n"
    content, stream = unpacked(gzip.compress(b"a\n") + b"garbage after it")
    assert content == b"a\n"
    assert stream.trouble is not None
    assert stream.trouble[0] == "trailing_bytes"


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_is_unpacked_in_bounded_chunks(kind: str) -> None:
    size = 40 * CHUNK_BYTES
    packed = PACKERS[kind](bytes(size))
    lengths = [len(chunk) for chunk in DecodedStream(io.BytesIO(packed))]
    assert sum(lengths) == size
    assert max(lengths) <= CHUNK_BYTES


def test_plain_file_longer_than_one_read() -> None:
    text = TEXT * (READ_BYTES // len(TEXT) + 2)
    assert unpacked(text)[0] == text


def test_empty_file() -> None:
    content, stream = unpacked(b"")
    assert content == b""
    assert stream.compression == "none"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig", "utf-32"])
def test_byte_order_mark_decides_the_encoding_and_is_dropped(encoding: str) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    text = "Zeile µ\n" * 100_000
    assert unpacked(mark + text.encode(encoding))[0] == text.encode()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_read_error_keeps_what_came_before(pack: Callable[[bytes], bytes]) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(2000)

    stream = DecodedStream(Failing(pack(TEXT)))
    assert TEXT.startswith(b"".join(stream))
    assert stream.trouble is not None
    assert stream.trouble == (
        "read_error",
        "reading stopped (Input/output error); what came before is kept",
    )


def test_short_heads_are_not_mistaken() -> None:
    assert detect_compression(b"") == "none"
    assert detect_compression(b"\x28\xb5") == "none"
    assert unpacked(b"\xff")[0] == b"\xff"
