"""`kvtrace hardware`: GPUs, links, stores and prices, with where each number comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import result

_NAME_HELP = "A GPU, a link, a store, `prices`, or a hardware TOML. None: list them."


def hardware(
    name: Annotated[
        str | None,
        typer.Argument(
            help=_NAME_HELP,
            metavar="[NAME]",
            autocompletion=completes("hardware"),
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--hardware", help="Hardware TOML that overrides or adds."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """What GPUs, links and stores can do: value, interval, kind, source and date of each number.

    \b
    Examples:
      kvtrace hardware
      kvtrace hardware H100-SXM5
      kvtrace hardware prices --json
      kvtrace hardware --hardware gpu.toml
    """
    from kvtrace import api

    outcome = api.hardware(name, file=file)
    text = outcome.to_json() if as_json else "\n".join(outcome.lines(opt.screen_width()))
    result(text)
