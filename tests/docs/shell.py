"""Runs the command lines of the documentation in this process, in a folder that has their files."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvtrace.cli import run

_EXIT: Final = re.compile(r"#.*exit code (?P<code>\d+)")
_FILTERS: Final = ("head", "tail", "grep", "jq", "less")
"""Programs that a line may pipe into; of these, head, tail and grep are done here."""


class _Standard(io.TextIOWrapper):
    """Text in memory that has the bytes below it, as a standard stream does."""

    def __init__(self, start: bytes = b"") -> None:
        super().__init__(io.BytesIO(start), encoding="utf-8", newline="")

    def text(self) -> str:
        """What was written so far."""
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode()


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command line printed and how it ended."""

    code: int
    out: str
    err: str


def expected_codes(line: str) -> set[int]:
    """The exit codes that a line may have: what its remark says, or 0; a gate may hold or not."""
    told = _EXIT.search(line)
    if told is not None:
        return {int(told["code"])}
    return {0, 1} if "--fail-on" in line else {0}


def joined(text: str) -> list[str]:
    """The command lines of a block: continued ones as one, remarks and empty lines left out."""
    whole = text.replace("\\\n", " ")
    return [line for line in whole.splitlines() if line.strip() and not line.startswith("#")]


@dataclass
class Shell:
    """A folder in which lines run; an equal line is run once."""

    folder: Path
    _ran: dict[str, Ran] = field(default_factory=dict)

    def run(self, line: str) -> Ran:
        """Run a line: `[cat FILE |] kvtrace … [| head -N] [> FILE]`.

        Raises:
            ValueError: the line is something else.
        """
        words = shlex.split(line, comments=True)
        key = shlex.join(words)
        if key not in self._ran:
            self._ran[key] = self._run(words)
        return self._ran[key]

    def _run(self, words: list[str]) -> Ran:
        target: str | None = None
        if ">" in words:
            at = words.index(">")
            words, (target,) = words[:at], words[at + 1 :]
        stages = list(_stages(words))
        given = b""
        if stages[0][0] == "cat":
            given = (self.folder / stages.pop(0)[1]).read_bytes()
        if not stages or stages[0][0] != "kvtrace" or any(s[0] not in _FILTERS for s in stages[1:]):
            raise ValueError(f"not a line that the documentation may have: {shlex.join(words)}")
        self._make_way(stages[0])
        done = self._kvtrace(stages[0][1:], given)
        out = done.out
        for stage in stages[1:]:
            out = _filtered(out, stage)
        if target is not None:
            (self.folder / target).write_text(out, encoding="utf-8")
            out = ""
        return Ran(done.code, out, done.err)

    def _make_way(self, words: list[str]) -> None:
        """A reader has no file yet where `init` and `sniff` write one; these refuse to replace."""
        written = words[words.index("-o") + 1] if "-o" in words else None
        if words[1] == "init":
            written = written or "fleet.toml"
        if words[1] in ("init", "sniff") and written is not None:
            (self.folder / written).unlink(missing_ok=True)

    def _kvtrace(self, arguments: list[str], given: bytes) -> Ran:
        out, err, stdin = _Standard(), _Standard(), _Standard(given)
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _standard_input(stdin),
            _signals_kept(),
        ):
            code = run(arguments)
        return Ran(code, out.text(), err.text())


def _stages(words: list[str]) -> Iterator[list[str]]:
    stage: list[str] = []
    for word in words:
        if word == "|":
            yield stage
            stage = []
        else:
            stage.append(word)
    yield stage


def _filtered(text: str, stage: list[str]) -> str:
    lines = text.splitlines(keepends=True)
    match stage:
        case ["head"]:
            return "".join(lines[:10])
        case ["head", count]:
            return "".join(lines[: int(count.lstrip("-n "))])
        case ["tail", count]:
            return "".join(lines[-int(count.lstrip("-n ")) :])
        case ["grep", word]:
            return "".join(line for line in lines if re.search(word, line))
        case _:
            return text


@contextlib.contextmanager
def _standard_input(stream: io.TextIOWrapper) -> Iterator[None]:
    import sys

    kept, sys.stdin = sys.stdin, stream
    try:
        yield
    finally:
        sys.stdin = kept


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    names = (signal.SIGINT, signal.SIGTERM)
    kept = [(name, signal.getsignal(name)) for name in names]
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        yield
    finally:
        for name, handler in kept:
            signal.signal(name, handler)
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
