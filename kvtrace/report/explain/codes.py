"""Every error code with its sentences, read from where it is raised.

The table is the program's own source, so that it is never behind it: a call of an error class with
a code, or of a function that looks up a name and raises with the code that it is given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from kvtrace import errors
from kvtrace.report.explain.explanation import Explanation, Fact

CODE: Final = re.compile(r"KVT-[A-Z]\d{3}")
_QUOTED: Final = re.compile(r'"(?:error\[)?(KVT-[A-Z]\d{3})')
_SAID_OF_EXIT: Final = {
    1: "a gate failed",
    2: "a flag, setting, unit, name or file of settings that cannot be used",
    3: "input that cannot be used",
    4: "a query, model, replay or report that cannot be computed",
    5: "an output that cannot be written, is locked, or is damaged",
    6: "a cluster or store",
    70: "a bug in kvtrace",
}


@dataclass(frozen=True, slots=True)
class Raised:
    """One place that raises a code."""

    message: str
    """As a template: `{…}` stands for what differs."""
    hint: str
    exit_code: int
    module: str


_OF_THE_COMMAND_LINE: Final = {
    "KVT-B001": Raised(
        "this is a bug in kvtrace",
        "run again with KVTRACE_DEBUG=1 and report what it prints",
        70,
        "kvtrace/cli/app.py",
    ),
}
"""Said where every exception ends, without being raised."""


def error_codes() -> tuple[str, ...]:
    """All codes, sorted; reads the source as text and parses nothing."""
    return tuple(sorted({code for _, text in _files() for code in _QUOTED.findall(text)}))


def explain_code(code: str) -> Explanation | None:
    """What a code says and what to do; null: there is no such code."""
    places = [one for one in _raised(code) if one.message]
    if not places:
        return None
    exit_code = places[0].exit_code
    facts = [Fact("says", one) for one in dict.fromkeys(one.message for one in places[1:])]
    facts += [Fact("do", one) for one in dict.fromkeys(one.hint for one in places) if one]
    facts.append(Fact("exit code", f"{exit_code}: {_SAID_OF_EXIT[exit_code]}"))
    facts += [Fact("raised in", one) for one in dict.fromkeys(one.module for one in places)]
    return Explanation(code, "error code", places[0].message, tuple(facts))


def _files() -> Iterator[tuple[str, str]]:
    """Path and text of every source file of this installation that names a code."""
    return _walk(resources.files("kvtrace"), "kvtrace")


def _walk(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if one.name.endswith(".py"):
            text = one.read_text(encoding="utf-8")
            if "KVT-" in text:
                yield f"{name}/{one.name}", text
        elif "." not in one.name and one.is_dir():
            yield from _walk(one, f"{name}/{one.name}")


def _raised(code: str) -> list[Raised]:
    """The places that raise a code, in order of module and line."""
    if code in _OF_THE_COMMAND_LINE:
        return [_OF_THE_COMMAND_LINE[code]]
    return [
        _place(call, module)
        for module, text in _files()
        if f'"{code}"' in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and _names(call, code)
    ]


def _names(call: ast.Call, code: str) -> bool:
    given = (*call.args, *(one.value for one in call.keywords))
    return any(isinstance(one, ast.Constant) and one.value == code for one in given)


def _place(call: ast.Call, module: str) -> Raised:
    """The error that a call makes; one that looks a name up says what it looks for."""
    name = ast.unparse(call.func).rpartition(".")[2]
    kind = getattr(errors, name, errors.UsageError)
    keywords = {one.arg: one.value for one in call.keywords}
    hint = _text(keywords.get("hint"))
    if name.endswith("Error"):
        said = call.args[1] if len(call.args) > 1 else keywords.get("message")
        return Raised(_text(said), hint, int(kind.exit_code), module)
    what = _text(keywords.get("what") or (call.args[1] if len(call.args) > 1 else None))
    message = f"`{{name}}` is not a known {what}" if what else ""
    return Raised(message, hint, int(kind.exit_code), module)


def _text(node: ast.expr | None) -> str:
    """A string as it stands in the source; `{…}` for what is filled in."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.FormattedValue(value=value):
            return f"{{{_subject(value)}}}"
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=other):
            return " / ".join(dict.fromkeys((_text(body), _text(other))))
        case None | ast.Constant():
            return ""
        case _:
            return f"{{{_subject(node)}}}"


def _subject(node: ast.expr) -> str:
    """A short name of what is filled in."""
    text = ast.unparse(node)
    return text if text.replace(".", "").replace("_", "").isalnum() else "…"
