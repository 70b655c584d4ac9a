"""Who hears what: results on stdout or in a file, notes on stderr, as `-q` and `-v` ask."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

import typer


@dataclass(frozen=True, slots=True)
class Voice:
    """How one run speaks."""

    is_quiet: bool = False
    """Nothing on stderr but errors."""
    is_verbose: bool = False
    """Settings with their origin, time and memory on stderr as well."""
    output: Path | None = None
    """File of the result; None: stdout."""


_VOICE: Final[ContextVar[Voice]] = ContextVar("voice", default=Voice())  # noqa: B039 (it is frozen)


def voice() -> Voice:
    """How this run speaks."""
    return _VOICE.get()


def speak(new: Voice) -> None:
    """From here on this run speaks so."""
    _VOICE.set(new)


def write_into(output: Path | None) -> None:
    """From here on results go to this file; None: stdout."""
    speak(replace(voice(), output=output))


def result(text: str, *, newline: bool = True) -> None:
    """What the verb is for: on stdout, or whole in the file of `-o`."""
    output = voice().output
    whole = f"{text}\n" if newline else text
    if output is None or output == Path("-"):
        typer.echo(whole, nl=False)
        return
    from kvtrace.api.outputs import write_output

    write_output(output, whole.encode())
    note(f"{output} written")


def note(text: str) -> None:
    """Something beside the result, on stderr; nothing with `-q`."""
    if text and not voice().is_quiet:
        typer.echo(text, err=True)


def detail(text: str) -> None:
    """Something for those who ask for more, on stderr with `-v`."""
    if text and voice().is_verbose:
        typer.echo(text, err=True)


def is_coloured(stream: TextIO) -> bool:
    """Whether colours help there: a terminal that shows them, and nobody who said no."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def complain(text: str) -> None:
    """An error on stderr; on a terminal its first word and its hint have a colour as well."""
    if is_coloured(sys.stderr):
        text = "\n".join(map(_coloured, text.split("\n")))
    sys.stderr.write(text + "\n")


def _coloured(line: str) -> str:
    for start, colour in (("error[", typer.colors.RED), ("hint: ", typer.colors.CYAN)):
        if line.startswith(start):
            head, mark, rest = line.partition(":")
            return typer.style(head + mark, fg=colour, bold=True) + rest
    return line
