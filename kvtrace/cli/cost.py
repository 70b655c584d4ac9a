"""`kvtrace cost`: what the cost model is worth, against published measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _cost() -> None:
    """Check the cost model against measurements."""


@app.command("validate", short_help="Predicted against measured, for a file of points.")
def validate(
    points: Annotated[
        Path, typer.Argument(help="CSV of measurements.", metavar="POINTS.csv", show_default=False)
    ],
    as_json: opt.Json = False,
) -> None:
    """Predict each measurement of a file, and say how far off: by kind, by series, by point.

    A point that the model cannot express is listed with the reason.

    \b
    Examples:
      kvtrace cost validate points.csv
      kvtrace cost validate points.csv --json
    """
    from kvtrace.api.cost import cost_validate

    outcome = cost_validate(points)
    typer.echo(outcome.to_json() if as_json else "\n".join(outcome.summary()))
