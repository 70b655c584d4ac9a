"""`kvtrace compare`: two audits side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt

_SIDE = "audit.json, or the folder that holds it."


def compare(
    a: Annotated[Path, typer.Argument(help=_SIDE, metavar="A", show_default=False)],
    b: Annotated[Path, typer.Argument(help=_SIDE, metavar="B", show_default=False)],
    as_json: opt.Json = False,
) -> None:
    """What audit B says that audit A does not: verdict, numbers, options, findings, assumptions.

    Where intervals overlap no difference is shown, and where the audits are of other traces, LLMs
    or hardware it is said first.

    \b
    Example:
      kvtrace compare reports/monday reports/friday/audit.json
    """
    from kvtrace import api

    done = api.compare(a, b)
    width = opt.screen_width()
    typer.echo(done.to_json() if as_json else "\n".join(done.summary(width)))
