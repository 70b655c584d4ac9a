"""`kvtrace export`: a dataset as an anonymised trace that other tools replay."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli.completing import completes
from kvtrace.cli.voice import note, result
from kvtrace.errors import UsageError

_FORMATS = "mooncake, aiperf, dynamo, kvcache-simulator, vidur or csv."


def export(
    dataset: Annotated[Path, typer.Argument(help="Output folder of ingest or analyze.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help=_FORMATS,
            autocompletion=completes("export"),
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write, .gz and .zst packed [stdout]."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="What was written and left out, as JSON (needs -o).")
    ] = False,
) -> None:
    """Write the requests of a dataset as a trace without names, ids or hashes.

    Blocks are numbered by first appearance, sessions too, times count from the first arrival.
    What was left out, and how the tool reads the file, is said on stderr.

    \b
    Examples:
      kvtrace export reports/chat --to mooncake -o chat.jsonl
      kvtrace export reports/chat --to csv | head
    """
    from kvtrace import api

    if as_json and output is None:
        raise UsageError(
            "KVT-U085",
            "the trace itself goes to stdout, where `--json` would stand in it",
            hint="name a file: `-o trace.jsonl`",
        )
    done = api.export(dataset, to=to, output=output if output is not None else sys.stdout.buffer)
    if as_json:
        result(done.to_json())
    else:
        note("\n".join(done.summary()))
