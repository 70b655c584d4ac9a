"""Gates on the command line: failed ones are named on stderr, and the exit code is 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kvtrace.cli.completing import completes
from kvtrace.errors import ExitCode

if TYPE_CHECKING:
    from kvtrace.api import Audit

FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        help="Exit 1 where this holds, as severity>=warning; repeat, or commas (docs/gates.md).",
        autocompletion=completes("gate"),
    ),
]


def stop_at_gates(audit: Audit, gates: Sequence[str]) -> None:
    """End with exit code 1 where a gate fails; nothing where there is none.

    Raises:
        typer.Exit: with the code of a failed gate.
    """
    from kvtrace import api

    outcome = api.judge_gates(audit, gates)
    for line in outcome.lines():
        typer.echo(line, err=True)
    if not outcome.has_passed:
        raise typer.Exit(int(ExitCode.GATE_FAILED))
