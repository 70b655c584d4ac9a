"""`kvtrace sniff`: what each file is, and the flag that would make it say more."""

from __future__ import annotations

import typer

from kvtrace.cli import options as opt


def sniff(inputs: opt.Inputs, as_json: opt.Json = False) -> None:
    """Say per file what it is and why, its evidence grade, what is missing, and the flag for it.

    \b
    Examples:
      kvtrace sniff logs/
      kvtrace sniff /var/log/vllm.log --json
    """
    from kvtrace import api

    sniffed = api.sniff(inputs)
    typer.echo(sniffed.to_json() if as_json else "\n".join(sniffed.lines()))
