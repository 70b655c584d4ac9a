"""`kvtrace explain`: what a name means, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import result

Name = Annotated[
    str,
    typer.Argument(
        help="Finding, KVT- code, query, option, outcome, metric, column, setting or term.",
        metavar="ID",
        autocompletion=completes("name"),
        show_default=False,
    ),
]


def explain(
    name: Name,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="audit.json (or its folder) to look in as well.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Say what a name in a report, a message or a table means, and what to do about it.

    With --audit, also what that audit says: the evidence of a finding, the figures of an option,
    the value and source of an assumption.

    \b
    Examples:
      kvtrace explain net_negative_hits
      kvtrace explain KVT-I004
      kvtrace explain pool_dram_tcp --audit reports/chat
    """
    from kvtrace import api

    found = api.explain(name, audit=audit)
    result(found.to_json() if as_json else "\n".join(found.lines(opt.screen_width())))
