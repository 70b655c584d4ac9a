"""`kvtrace sniff`: what each file is, and the flag that would make it say more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.voice import note, result, write_into


def sniff(
    inputs: opt.Inputs,
    mapping: opt.Mapping = None,
    suggest_mapping: Annotated[
        bool,
        typer.Option("--suggest-mapping", help="Write a first mapping for JSON or CSV, as TOML."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File for the result or the mapping [stdout]."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Say per file what it is and why, its evidence grade, what is missing, and the flag for it.

    \b
    Examples:
      kvtrace sniff logs/
      kvtrace sniff vllm.log --json
      kvtrace sniff custom.jsonl --suggest-mapping -o map.toml
      kvtrace sniff custom.jsonl --mapping map.toml
    """
    from kvtrace import api

    if suggest_mapping:
        if mapping is not None or as_json:
            raise typer.BadParameter("stands alone", param_hint="--suggest-mapping")
        text = api.suggest_mapping(inputs, output=output)
        if output is None:
            result(text, newline=False)
        else:
            marked = text.count("(check me)")
            lines = f"{marked} lines" if marked != 1 else "1 line"
            note(f"{output} written; {lines} to check, marked `check me`")
        return
    if output is not None and output.suffix == ".toml":
        raise typer.BadParameter("a mapping is written with --suggest-mapping", param_hint="-o")
    write_into(output)
    sniffed = api.sniff(inputs, mapping=mapping)
    result(sniffed.to_json() if as_json else "\n".join(sniffed.lines(opt.screen_width())))
