"""`kvtrace verify`: the headline numbers again, by another way."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.voice import result
from kvtrace.errors import ExitCode

Tolerance = Annotated[
    float, typer.Option(help="Share by which engine counters may stand off; all else is exact.")
]


def verify(
    dataset: Annotated[Path, typer.Argument(help="Output folder of ingest or analyze.")],
    tolerance: Tolerance = 0.05,
    as_json: opt.Json = False,
) -> None:
    """Recompute the headline numbers from the rows in plain Python, and compare.

    With the queries, the manifest and audit.json they must be equal; with what the engines
    counted, as near as the edges of their windows allow. Exit code 1 where any check fails.

    \b
    Examples:
      kvtrace verify reports/chat
      kvtrace verify reports/chat --json | jq '.checks[] | select(.verdict == "fail")'
    """
    from kvtrace import api

    done = api.verify(dataset, tolerance=tolerance)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    result(done.to_json() if as_json else "\n".join(done.summary(width)))
    if not done.has_passed:
        raise typer.Exit(int(ExitCode.GATE_FAILED))
