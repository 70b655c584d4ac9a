#!/usr/bin/env python3
"""Fetch axe-core for the accessibility test: `fetch_axe.py`; needs npm and a network.

axe-core (MPL-2.0) is a tool of the tests only: nothing of it is shipped or kept in this repository.
It goes to a cache folder outside, `AXE_CORE_CACHE` or the user's cache, and is used only if its
digest is the pinned one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

VERSION: Final = "4.14.1"
TARBALL_SHA256: Final = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
SCRIPT_SHA256: Final = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
_TIMEOUT_S: Final = 120


def axe_path() -> Path:
    """Where the script lies or would lie."""
    folder = os.environ.get("AXE_CORE_CACHE")
    base = Path(folder) if folder else user_cache_path("kvtrace-tests")
    return base / f"axe-core-{VERSION}.min.js"


def cached() -> str | None:
    """The script, if it is there and is the pinned one."""
    path = axe_path()
    if not path.is_file():
        return None
    raw = path.read_bytes()
    return raw.decode("utf-8") if hashlib.sha256(raw).hexdigest() == SCRIPT_SHA256 else None


def fetch() -> Path:
    """Download the pinned tarball with npm, check it, keep its script; returns the path."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"axe-core@{VERSION}", "--silent", "--pack-destination", folder]
        subprocess.run(command, check=True, cwd=folder, timeout=_TIMEOUT_S, capture_output=True)
        raw = (Path(folder) / f"axe-core-{VERSION}.tgz").read_bytes()
        if hashlib.sha256(raw).hexdigest() != TARBALL_SHA256:
            raise SystemExit("the tarball is not the pinned one")
        with tarfile.open(Path(folder) / f"axe-core-{VERSION}.tgz") as archive:
            member = archive.extractfile("package/axe.min.js")
            if member is None:
                raise SystemExit("axe.min.js is not a file of the package")
            script = member.read()
    path = axe_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(script)
    return path


def main() -> None:
    """Command line."""
    sys.stdout.write(f"{axe_path() if cached() is not None else fetch()}\n")


if __name__ == "__main__":
    main()
