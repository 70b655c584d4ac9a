"""`kvtrace report`: the HTML again, from audit.json alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt


def report(
    audit: Annotated[Path, typer.Argument(help="audit.json, or the folder that holds it.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="HTML file [default: beside audit.json].")
    ] = None,
    lang: opt.Lang = None,
    config: opt.Config = None,
) -> None:
    """Render report.html from an audit.json; nothing else is read.

    \b
    Example:
      kvtrace report reports/chat/audit.json --lang zh
    """
    from kvtrace import api

    settings = opt.settings_from(config, lang=lang)
    typer.echo(str(api.report(audit, output=output, lang=settings.text("lang") or "en")))
