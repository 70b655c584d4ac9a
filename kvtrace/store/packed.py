"""Text files that are written line by line, packed as their name says, whole or not at all."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from kvtrace.store.files import sync_folder, temporary_name

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_BATCH_BYTES: Final = 1 << 20
_GZIP_LEVEL: Final = 6


class Sink(Protocol):
    """Takes bytes."""

    def write(self, data: bytes, /) -> object:
        """Take the bytes."""
        ...


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each with a newline; `.gz` and `.zst` are packed. Same lines, same bytes.

    Raises:
        OSError: the file cannot be written; what was there before stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as file:
            with _packer(file, path.suffix) as sink:
                put_lines(sink, lines)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)
    sync_folder(path.parent)


def put_lines(sink: Sink, lines: Iterable[str]) -> None:
    """Write lines in batches of about a mebibyte."""
    batch: list[str] = []
    held = 0
    for line in lines:
        batch.append(line)
        held += len(line)
        if held >= _BATCH_BYTES:
            sink.write(_joined(batch))
            batch.clear()
            held = 0
    sink.write(_joined(batch))


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@contextmanager
def _packer(file: BinaryIO, suffix: str) -> Iterator[Sink]:
    if suffix == ".gz":
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
            yield packed
    elif suffix == ".zst":
        with zstd.ZstdFile(file, "wb") as frames:
            yield frames
    else:
        yield file
