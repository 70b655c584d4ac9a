"""One writer per output folder, and the salt that a rerun into it reuses."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Final, Self

from filelock import FileLock, Timeout

from kvtrace.errors import Location, OutputError
from kvtrace.store.files import write_atomically

LOCK_NAME: Final = ".kvtrace.lock"
SALT_NAME: Final = ".salt"
SALT_BYTES: Final = 32


class OutputLock:
    """Holds an output folder for one process; use `with`, or `acquire` and `release`."""

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir
        self._path = output_dir / LOCK_NAME
        self._lock = FileLock(
            str(self._path),
            timeout=0,
            thread_local=False,
            preserve_lock_file=True,
            on_acquired=self._sign,
        )

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the folder.

        Raises:
            OutputError: KVT-O001 it cannot be written, KVT-O002 another run holds it.
        """
        try:
            self.output_dir.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise OutputError(
                "KVT-O002",
                "another run writes to this folder",
                where=Location(str(self.output_dir)),
                cause=f"it is held by {self._holder()}",
                hint="wait for it to end, or choose another folder with `-o`",
            ) from None
        except OSError as error:
            raise unwritable(self.output_dir, error) from error

    def release(self) -> None:
        """Give the folder back."""
        self._lock.release()

    def _sign(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def _holder(self) -> str:
        try:
            text = self._path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            text = ""
        return f"process {text}" if text.isdigit() else "a process that left no number"


def unwritable(path: Path, error: OSError) -> OutputError:
    """The error of an output that cannot be written."""
    return OutputError(
        "KVT-O001",
        "the output cannot be written",
        where=Location(str(path)),
        cause=error.strerror or str(error),
        hint="choose a folder that you may write to with `-o`",
    )


def load_or_create_salt(output_dir: Path) -> bytes:
    """The salt of an output folder, made on first use; it lies outside the dataset, mode 0600.

    Raises:
        OutputError: KVT-O001 it cannot be written or read, KVT-O005 it is damaged.
    """
    path = output_dir / SALT_NAME
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_atomically(path, secrets.token_bytes(SALT_BYTES), mode=0o600)
        salt = path.read_bytes()
    except OSError as error:
        raise unwritable(path, error) from error
    if len(salt) != SALT_BYTES:
        raise OutputError(
            "KVT-O005",
            f"the salt is damaged: {len(salt)} bytes instead of {SALT_BYTES}",
            where=Location(str(path)),
            hint="remove the file to get a new salt; ids then no longer match older datasets",
        )
    return salt


def salt_from_text(text: str) -> bytes:
    """The salt of a text that a person gives to make ids match between datasets (`--salt`)."""
    return hashlib.blake2b(text.encode(), digest_size=SALT_BYTES, person=b"kvtrace salt").digest()
