"""The lock and the salt of an output folder."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvtrace.errors import OutputError
from kvtrace.store.lock import (
    LOCK_NAME,
    SALT_NAME,
    OutputLock,
    load_or_create_salt,
    salt_from_text,
)


def test_salt_is_made_once_and_kept_private(tmp_path: Path) -> None:
    salt = load_or_create_salt(tmp_path / "out")
    assert len(salt) == 32
    assert load_or_create_salt(tmp_path / "out") == salt
    assert stat.S_IMODE((tmp_path / "out" / SALT_NAME).stat().st_mode) == 0o600
    assert load_or_create_salt(tmp_path / "other") != salt


def test_damaged_salt_is_named(tmp_path: Path) -> None:
    (tmp_path / SALT_NAME).write_bytes(b"short")
    with pytest.raises(OutputError) as caught:
        load_or_create_salt(tmp_path)
    assert caught.value.code == "KVT-O005"


def test_salt_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        load_or_create_salt(tmp_path / "file" / "out")
    assert caught.value.code == "KVT-O001"


def test_stated_salt_depends_on_its_text_only() -> None:
    assert salt_from_text("a") == salt_from_text("a")
    assert salt_from_text("a") != salt_from_text("b")
    assert len(salt_from_text("a")) == 32


def test_another_process_is_kept_out_and_told_the_holder(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from kvtrace.store.lock import OutputLock\n"
        "from kvtrace.errors import OutputError\n"
        "try:\n"
        "    OutputLock(Path(sys.argv[1])).acquire()\n"
        "except OutputError as error:\n"
        "    print(error.code, error.cause)\n"
    )
    with OutputLock(tmp_path):
        holder = (tmp_path / LOCK_NAME).read_text().strip()
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout == f"KVT-O002 it is held by process {holder}\n"


def test_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text("99999999\n")
    with OutputLock(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() != "99999999\n"
