"""The page docs/cli.md: every verb with its usage, examples, arguments and options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

from kvtrace.cli.app import app
from kvtrace.errors import ExitCode

_HEAD: Final = """# Command line

Every verb, with its examples, arguments and options: what `kvtrace VERB --help` prints. Results go
to stdout, progress and notes to stderr; a value in [brackets] is the default.

```bash
kvtrace --help
kvtrace ledger --help
```

Written by `scripts/gen_cli_docs.py` from the commands themselves.
"""
_EXITS: Final = {
    ExitCode.DONE: "done, whatever the verdict",
    ExitCode.GATE_FAILED: "a gate failed (`--fail-on`), or `kvtrace verify` found a difference",
    ExitCode.USAGE: "the command line or a settings file is wrong",
    ExitCode.INPUT_UNUSABLE: "the input cannot be used",
    ExitCode.MODEL_FAILED: "a query, the model or a report failed",
    ExitCode.OUTPUT: "the output could not be written, or another run holds its lock",
    ExitCode.CLUSTER: "a cluster or an object store failed",
    ExitCode.BUG: "a bug of kvtrace",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.TERMINATED: "terminated",
}


def render_cli_docs() -> str:
    """The page, verbs in the order of `kvtrace --help`."""
    commands = list(_commands(typer.main.get_command(app), ()))
    return "\n".join(
        [_HEAD, _verbs(commands), _exit_codes(), *(_section(*command) for command in commands)]
    )


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        here = (*path, name)
        if hasattr(command, "commands"):
            yield from _commands(command, here)
        elif not command.hidden:
            yield here, command


def _verbs(commands: Sequence[tuple[tuple[str, ...], Any]]) -> str:
    rows = ["| verb | what it does |", "|---|---|"]
    for path, command in commands:
        anchor = "-".join(("kvtrace", *path))
        rows.append(f"| [`{' '.join(path)}`](#{anchor}) | {command.get_short_help_str(100)} |")
    return "\n".join(rows) + "\n"


def _exit_codes() -> str:
    rows = ["## Exit codes", "", "| code | meaning |", "|---:|---|"]
    return "\n".join(rows + [f"| {int(code)} | {_EXITS[code]} |" for code in ExitCode]) + "\n"


def _section(path: tuple[str, ...], command: Any) -> str:
    context = command.make_context(" ".join(("kvtrace", *path)), [], resilient_parsing=True)
    usage = " ".join((context.info_name, *command.collect_usage_pieces(context)))
    words, examples = _told(command.help or "")
    lines = [f"## kvtrace {' '.join(path)}", "", *words, "", "```text", usage, "```", ""]
    if examples:
        lines += ["```bash", *examples, "```", ""]
    for kind, title in (("argument", "argument"), ("option", "option")):
        records = [
            record
            for parameter in command.get_params(context)
            if parameter.param_type_name == kind
            and (record := parameter.get_help_record(context)) is not None
        ]
        if records:
            lines += [f"| {title} | |", "|---|---|"]
            lines += [f"| `{_cell(left)}` | {_cell(right)} |" for left, right in records]
            lines.append("")
    return "\n".join(lines)


def _told(text: str) -> tuple[list[str], list[str]]:
    """The paragraphs of a help text, and the lines of its examples."""
    before, _, after = text.partition("\b\nExamples:\n")
    examples = [line.removeprefix("  ") for line in after.splitlines() if line.strip()]
    return before.strip().splitlines(), examples


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")
