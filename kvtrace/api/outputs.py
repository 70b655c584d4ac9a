"""Files that verbs write whole, and the audit that they read again."""

from __future__ import annotations

from pathlib import Path

from kvtrace.errors import InputError, Location
from kvtrace.store.files import write_atomically
from kvtrace.store.lock import unwritable


def write_output(path: Path, data: bytes) -> None:
    """Write a whole file or nothing.

    Raises:
        OutputError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise unwritable(path, error) from error


def read_audit(path: Path) -> bytes:
    """Bytes of an audit.json.

    Raises:
        InputError: it is absent or unreadable.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            "KVT-A003",
            "the audit cannot be read",
            where=Location(str(path)),
            cause=error.strerror,
            hint="pass the `audit.json` that `kvtrace analyze` wrote",
        ) from error
