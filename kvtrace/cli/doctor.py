"""`kvtrace doctor`: what is installed, set and free here, and what is missing."""

from __future__ import annotations

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.voice import result
from kvtrace.errors import ExitCode


def doctor(config: opt.Config = None, as_json: opt.Json = False) -> None:
    """Say what is installed, set and free on this machine, and what each extra lacks.

    Every setting stands with where its value comes from. Exit code 1 where kvtrace cannot work.

    \b
    Examples:
      kvtrace doctor
      kvtrace doctor --json | jq '.checks[] | select(.standing != "ok")'
      kvtrace doctor --config team.toml
    """
    from kvtrace import api

    found = api.doctor(config=config)
    result(found.to_json() if as_json else "\n".join(found.lines()))
    if found.is_broken:
        raise typer.Exit(int(ExitCode.GATE_FAILED))
