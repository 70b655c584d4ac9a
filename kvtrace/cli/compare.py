"""`kvtrace compare`: two audits side by side, or the same requests with a cache off and on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.progress import make_progress
from kvtrace.cli.voice import result, write_into
from kvtrace.errors import UsageError

_SIDE = "audit.json or its folder; with --paired a dataset or logs, cache {side}."
PairedFlag = Annotated[
    bool, typer.Option("--paired", help="The same requests with a cache off (A) and on (B).")
]
PairedOutput = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="File for the result; --paired: a folder for datasets."),
]


def compare(
    context: typer.Context,
    a: Annotated[Path, typer.Argument(help=_SIDE.format(side="off"), metavar="A")],
    b: Annotated[Path, typer.Argument(help=_SIDE.format(side="on"), metavar="B")],
    paired: PairedFlag = False,
    output: PairedOutput = None,
    salt: opt.Salt = None,
    mapping: opt.Mapping = None,
    config: opt.Config = None,
    as_json: opt.Json = False,
) -> None:
    """What audit B says that audit A does not: verdict, numbers, options, findings, assumptions.

    Where intervals overlap no difference is shown, and where the audits are of other traces, LLMs
    or hardware it is said first. With --paired: the change of TTFT of each request, split into
    compute saved, move added and queue, as far as the logs say (measured).

    \b
    Examples:
      kvtrace compare reports/monday reports/friday/audit.json
      kvtrace compare --paired runs/cache-off runs/cache-on
    """
    from kvtrace import api

    if not paired:
        _refuse({"--salt": salt, "--mapping": mapping})
        write_into(output)
        done = api.compare(a, b)
        result(done.to_json() if as_json else "\n".join(done.summary(opt.screen_width())))
        return
    settings = opt.settings_of(context, config)
    watch = make_progress()
    split = api.compare_paired(a, b, output=output, settings=settings, progress=watch)
    result(split.to_json() if as_json else "\n".join(split.summary(opt.screen_width())))


def _refuse(flags: dict[str, object]) -> None:
    """Refuse flags that only pairs use."""
    given = [name for name, value in flags.items() if value is not None]
    if given:
        raise UsageError(
            "KVT-U084",
            f"`{given[0]}` does nothing where two audits are compared",
            hint="add `--paired` to compare the same requests, or leave it out",
        )
