"""What a shell is answered when it asks for completions, without parsing the whole command line.

The scripts are typer's (`--install-completion`); its own answer would check the types of what was
typed, for which it loads a library that takes longer than all else. Shells that are not known here
are left to it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Item = tuple[str, str]
"""A value and what it is; the latter may be empty."""
VARIABLE: Final = "_KVTRACE_COMPLETE"
_ZSH_ESCAPES: Final = (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", r"\\:"))


def answer(root: Any, environment: Mapping[str, str]) -> tuple[str, int] | None:
    """What to print and the exit code; None: nobody asks, or a shell that is not known here."""
    shell = environment.get(VARIABLE, "").removeprefix("complete_")
    speak = _SHELLS.get(shell)
    if speak is None:
        return None
    words, begun = _typed(shell, environment)
    return speak(_items(root, words, begun), environment)


def _typed(shell: str, environment: Mapping[str, str]) -> tuple[list[str], str]:
    """The whole words behind the program's name, and the one that is begun."""
    if shell == "bash":
        words = _split(environment.get("COMP_WORDS", ""))
        at = int(environment.get("COMP_CWORD") or 1)
        return words[1:at], words[at] if at < len(words) else ""
    line = environment.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(line)[1:]
    if words and not line.endswith(" "):
        return words[:-1], words[-1]
    return words, ""


def _split(line: str) -> list[str]:
    """Words of a line whose last quote may still be open."""
    for closed in (line, f"{line}'", f'{line}"'):
        try:
            return shlex.split(closed)
        except ValueError:
            continue
    return line.split()


def _items(root: Any, words: Sequence[str], begun: str) -> list[Item]:
    command, left = root, list(words)
    while left and left[0] in getattr(command, "commands", {}):
        command = command.commands[left.pop(0)]
    parameters = [one for one in command.params if not getattr(one, "hidden", False)]
    options = {name: one for one in parameters for name in (*one.opts, *one.secondary_opts)}
    flag, joined, value = begun.partition("=")
    if joined and flag in options:
        return _values(options[flag], value)
    if left and _takes_value(options.get(left[-1])):
        return _values(options[left[-1]], begun)
    if begun.startswith("-"):
        long = (name for name in sorted(options) if name.startswith("--"))
        return [(name, "") for name in long if name.startswith(begun)]
    below = getattr(command, "commands", None)
    if below is not None:
        return [
            (name, one.short_help or "") for name, one in below.items() if name.startswith(begun)
        ]
    return _of_argument(parameters, options, left, begun)


def _takes_value(parameter: Any) -> bool:
    """Whether a flag is followed by a value."""
    return parameter is not None and not parameter.is_flag and parameter.name != "help"


def _of_argument(
    parameters: Sequence[Any], options: Mapping[str, Any], words: Sequence[str], begun: str
) -> list[Item]:
    """Values of the argument that comes next."""
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    count = sum(
        not word.startswith("-") and not _takes_value(options.get(words[at - 1] if at else ""))
        for at, word in enumerate(words)
    )
    if not arguments:
        return []
    last = arguments[-1]
    if count >= len(arguments) and last.nargs == 1:
        return []
    return _values(arguments[min(count, len(arguments) - 1)], begun)


def _values(parameter: Any, begun: str) -> list[Item]:
    return [(one.value, one.help or "") for one in parameter.shell_complete(None, begun)]


def _bash(items: Sequence[Item], _: Mapping[str, str]) -> tuple[str, int]:
    return "\n".join(value for value, _help in items), 0


def _zsh(items: Sequence[Item], _: Mapping[str, str]) -> tuple[str, int]:
    if not items:
        return "_files", 0
    told = (
        f'"{_zsh_text(value)}":"{_zsh_text(said)}"' if said else f'"{_zsh_text(value)}"'
        for value, said in items
    )
    joined = "\n".join(told)
    return f"_arguments '*: :(({joined}))'", 0


def _zsh_text(text: str) -> str:
    for sign, escaped in _ZSH_ESCAPES:
        text = text.replace(sign, escaped)
    return text


def _fish(items: Sequence[Item], environment: Mapping[str, str]) -> tuple[str, int]:
    if environment.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return "", 0 if items else 1
    return "\n".join(f"{value}\t{said}" if said else value for value, said in items), 0


_SHELLS: Final[Mapping[str, Callable[[Sequence[Item], Mapping[str, str]], tuple[str, int]]]] = {
    "bash": _bash,
    "fish": _fish,
    "zsh": _zsh,
}
