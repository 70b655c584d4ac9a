"""Running the command line as a person or a script would: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def kvtrace(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs `kvtrace ARGS…` in an empty folder with no settings from this machine."""
    home = tmp_path_factory.mktemp("home")

    def run(
        *arguments: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("KVTRACE_")}
        clean |= {"HOME": str(home), "NO_COLOR": "1", "COLUMNS": "100"}
        clean |= environment or {}
        return subprocess.run(
            [sys.executable, "-m", "kvtrace", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=cwd or home,
            env=clean,
            check=False,
            timeout=120,
        )

    return run
