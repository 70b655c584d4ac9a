"""`kvtrace report`: HTML, Markdown or a decision record again, from audit.json alone."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.gating import FailOn, stop_at_gates
from kvtrace.cli.voice import result, voice


class Form(StrEnum):
    """What a report is written as."""

    HTML = "html"
    JSON = "json"
    MD = "md"
    ADR = "adr"


def report(
    audit: Annotated[Path, typer.Argument(help="audit.json, or the folder that holds it.")],
    to: Annotated[
        Form, typer.Option("--to", help="adr: a decision record, the decision left to a person.")
    ] = Form.HTML,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File [HTML: beside audit.json; else stdout]."),
    ] = None,
    lang: opt.Lang = None,
    config: opt.Config = None,
    fail_on: FailOn = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The record as JSON, the same as --to json.")
    ] = False,
) -> None:
    """Render a report from an audit.json; nothing else is read.

    \b
    Examples:
      kvtrace report reports/chat/audit.json --lang zh
      kvtrace report reports/chat --to adr -o adr.md
      kvtrace report reports/chat --to md --fail-on 'confidence<medium'
    """
    from kvtrace import api

    form = Form.JSON if as_json else to
    settings = opt.settings_from(config, lang=lang)
    words = settings.text("lang") or "en"
    loaded = api.load_audit(audit)
    if output is None and form is not Form.HTML:
        result(api.render_report(loaded, to=form, lang=words), newline=False)
    else:
        written = api.report(audit, output=output, lang=words, to=form)
        if not voice().is_quiet:
            result(str(written))
    if fail_on:
        stop_at_gates(loaded, fail_on)
