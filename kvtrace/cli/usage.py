"""What a wrong command line is answered: code, sentence, close matches, where to read on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

import typer

from kvtrace.errors import KvtraceError, UsageError

_UNKNOWN_VERB: Final = re.compile(r"No such command '(?P<name>[^']*)'")
_ALLOWED: Final = re.compile(r"'(?P<given>.*)' is not one of (?P<known>.+?)\.?$")
_EXAMPLE: Final = re.compile(r"Examples:\s*\n\s*(\S[^\n]*)")
_PREFIX: Final = "Value error, "


def said_of(fault: typer.TyperException, verb: str = "") -> KvtraceError | str:
    """A fault of the command line as our own error; the help, where that was what was asked.

    `verb` is the first word, for faults that do not know where they are.
    """
    context = getattr(fault, "ctx", None)
    path = f"kvtrace {verb}".rstrip() if context is None else context.command_path
    if type(fault).__name__ == "NoArgsIsHelpError":
        return fault.format_message()
    if getattr(fault, "option_name", None) is not None:
        return _of_option(fault, context, path)
    unknown = _UNKNOWN_VERB.search(fault.message)
    if unknown is not None:
        return _unknown_verb(unknown["name"], context, path)
    if getattr(fault, "param", None) is not None or getattr(fault, "param_hint", None):
        return _of_value(fault, context, path)
    return UsageError(
        "KVT-U104",
        f"`{path}` cannot be run so",
        cause=fault.format_message(),
        hint=f"`{path} --help` has examples",
    )


def _unknown_verb(name: str, context: typer.Context | None, path: str) -> UsageError:
    known = list(getattr(getattr(context, "command", None), "commands", {}))
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    meant = f"did you mean {_either(f'`{path} {one}`' for one in close)}? " if close else ""
    return UsageError(
        "KVT-U100",
        f"`{path}` has no command `{name}`",
        hint=f"{meant}`{path} --help` lists all",
    )


def _of_option(fault: typer.TyperException, context: typer.Context | None, path: str) -> UsageError:
    name = str(getattr(fault, "option_name", ""))
    if not fault.message.startswith("No such option"):
        return UsageError(
            "KVT-U101", fault.format_message().rstrip("."), hint=f"`{path} --help` has examples"
        )
    known = _flags(context)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    meant = f"did you mean {_either(f'`{one}`' for one in close)}? " if close else ""
    return UsageError(
        "KVT-U102",
        f"`{path}` has no flag `{name}`",
        hint=f"{meant}`{path} --help` lists all",
    )


def _flags(context: typer.Context | None) -> list[str]:
    """Every flag of the command."""
    parameters = [] if context is None else context.command.params
    return [name for one in parameters for name in (*one.opts, *one.secondary_opts)]


def _example(context: typer.Context | None, path: str) -> str:
    """The first example of the help, and where the others are."""
    text = (None if context is None else context.command.help) or ""
    found = _EXAMPLE.search(text)
    first = f"as `{found[1].strip()}`; " if found else ""
    return f"{first}`{path} --help` has {'more' if found else 'examples'}"


def _of_value(fault: typer.TyperException, context: typer.Context | None, path: str) -> UsageError:
    param = getattr(fault, "param", None)
    shown = getattr(fault, "param_hint", None)
    if shown is None and param is not None:
        flags = [one for one in param.opts if one.startswith("--")] or param.opts[:1]
        is_flag = flags[0].startswith("-")
        shown = flags[0] if is_flag else param.metavar or param.name
    message = fault.message.removeprefix(_PREFIX).rstrip(".")
    if not message:
        return UsageError(
            "KVT-U103",
            f"`{path}` needs {shown}",
            hint=_example(context, path),
        )
    allowed = _ALLOWED.search(message)
    if allowed is None:
        return UsageError(
            "KVT-U105",
            f"`{shown}` of `{path}` cannot be that",
            cause=message[:1].lower() + message[1:],
            hint=_example(context, path),
        )
    known = re.findall(r"'([^']*)'", allowed["known"])
    close = difflib.get_close_matches(allowed["given"], known, n=1, cutoff=0.5)
    meant = f"did you mean `{shown} {close[0]}`? " if close else ""
    return UsageError(
        "KVT-U106",
        f"`{shown}` is never `{allowed['given']}`",
        hint=f"{meant}it is one of {', '.join(known)}",
    )


def _either(words: Iterable[str]) -> str:
    return " or ".join(words)
