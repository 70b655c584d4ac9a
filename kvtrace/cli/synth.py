"""`kvtrace synth`: sample logs with a story, from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def synth(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write into.")],
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.", min=0)] = 7,
) -> None:
    """Write the sample logs of a small service: a trace, engine logs and request timings.

    \b
    Example:
      kvtrace synth -o /tmp/sample --seed 7
    """
    from kvtrace import api

    typer.echo("\n".join(str(path) for path in api.synthesise(output, seed=seed)))
