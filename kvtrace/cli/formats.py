"""`kvtrace formats`: what can be read, and what each format supplies."""

from __future__ import annotations

from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import result


def formats(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A format such as mooncake.",
            autocompletion=completes("format"),
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """List the log formats that kvtrace reads, their evidence grade and what switches them on.

    \b
    Examples:
      kvtrace formats
      kvtrace formats vllm_text
    """
    from kvtrace import api

    listing = api.describe_formats(name)
    result(listing.to_json() if as_json else "\n".join(listing.lines()))
