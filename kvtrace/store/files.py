"""Files that appear under their name whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

TEMPORARY_PREFIX: Final = ".tmp-"
_READ_BYTES: Final = 1 << 20


def temporary_name(path: Path) -> Path:
    """Where the content of `path` is written until it is whole."""
    return path.with_name(f"{TEMPORARY_PREFIX}{path.name}")


def sync_file(path: Path) -> None:
    """Force the content of a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Force the names in a folder to the disk, where the system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that it is there whole, even if the machine stops on the way."""
    temporary = temporary_name(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def file_digest(path: Path) -> str:
    """BLAKE2b-128 of a file's bytes."""
    hashed = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            hashed.update(data)
    return hashed.hexdigest()
