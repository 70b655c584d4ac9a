"""Every error that kvtrace raises on purpose, with its exit code and its hint.

An error carries what a person needs to act: a stable code, one sentence, where, and a hint that
can be pasted. Only `kvtrace.cli` catches these; a traceback is a bug (exit code 70).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of the command line; the meaning of each is a promise."""

    DONE = 0
    GATE_FAILED = 1
    USAGE = 2
    INPUT_UNUSABLE = 3
    MODEL_FAILED = 4
    OUTPUT = 5
    CLUSTER = 6
    BUG = 70
    INTERRUPTED = 130
    TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the input or output something went wrong."""

    path: str
    line: int | None = None
    detail: str | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return place if self.detail is None else f"{place} ({self.detail})"


class KvtraceError(Exception):
    """Base of all errors with a code, a location, a cause and a hint.

    Subclasses fix the exit code; `code` names the single fault, such as `KVT-I004`.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.BUG

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: Location | None = None,
        cause: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.cause = cause
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """So that an error of a worker process arrives whole."""
        return Exception.__new__, (type(self), self.message), self.__dict__

    def render(self) -> str:
        """The error as a person reads it: code, sentence, location, cause, hint."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.where is not None:
            lines.append(f"  at: {self.where}")
        if self.cause is not None:
            lines.extend(f"  {line}" for line in self.cause.splitlines())
        if self.hint is not None:
            lines.extend(("", f"hint: {self.hint}"))
        return "\n".join(lines)


class UsageError(KvtraceError):
    """A flag, setting, unit, name or config file that cannot be used."""

    exit_code = ExitCode.USAGE


class InputError(KvtraceError):
    """Input that cannot be analysed, or too much of it rejected."""

    exit_code = ExitCode.INPUT_UNUSABLE


class ModelError(KvtraceError):
    """A query, cost model, replay or report that cannot be computed."""

    exit_code = ExitCode.MODEL_FAILED


class OutputError(KvtraceError):
    """An output that cannot be written, is locked, or is damaged."""

    exit_code = ExitCode.OUTPUT
