"""Running the command line as a person or a script would: its words, its streams, its exit code.

Most runs are a call of `kvtrace.cli.run` in this process, with streams, folder and environment of
their own: an interpreter of its own costs a second a run and proves nothing more about a verb.
`kvtrace_process` starts one: for what only a process has (`python -m kvtrace`, its start and end).
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

import pytest

from kvtrace.cli import run as run_here

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder with no settings from this machine."""
    return tmp_path_factory.mktemp("home")


def _clean(home: Path, more: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a run."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("KVTRACE_")}
    return clean | {"HOME": str(home), "NO_COLOR": "1", "COLUMNS": "100"} | dict(more or {})


@contextlib.contextmanager
def _as_a_process(cwd: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """The folder, environment, temporary folder and signals of a run; then those of before."""
    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(tempfile, "tempdir", None),
    ):
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


@pytest.fixture(scope="session")
def kvtrace(home: Path) -> Run:
    """Runs `kvtrace ARGS…` in this process."""

    def run(
        *arguments: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        words = [*map(str, arguments)]
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with (
            _as_a_process(cwd or home, _clean(home, environment)),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run_here(words)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
        return subprocess.CompletedProcess(words, code, *texts)

    return run


@pytest.fixture(scope="session")
def kvtrace_process(home: Path) -> Run:
    """Runs `python -m kvtrace ARGS…` in a process of its own."""

    def run(
        *arguments: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kvtrace", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=cwd or home,
            env=_clean(home, environment),
            check=False,
            timeout=120,
        )

    return run
