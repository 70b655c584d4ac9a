"""`kvtrace llm`: KV bytes and FLOPs of LLMs, built in or from a config.json."""

from __future__ import annotations

from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import result

_NAME_HELP = "A built-in LLM, or a Hugging Face config.json (`-`: from stdin). None: list them."


def llm(
    name: Annotated[
        str | None,
        typer.Argument(
            help=_NAME_HELP,
            metavar="[NAME]",
            autocompletion=completes("llm"),
        ),
    ] = None,
    tp: Annotated[int, typer.Option("--tp", help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option("--pp", help="Pipeline stages.")] = 1,
    dp_attention: Annotated[
        bool,
        typer.Option("--dp-attention", help="A sequence's KV lies on one rank of each stage."),
    ] = False,
    kv_dtype: Annotated[
        str | None, typer.Option("--kv-dtype", help="bf16, fp8, fp8_ds_mla, int8, … [the LLM's].")
    ] = None,
    block_size: Annotated[
        int | None, typer.Option("--block-size", help="Round up to blocks of so many tokens.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """What an LLM stores per token and computes per prefill, by length, rank and number format.

    \b
    Examples:
      kvtrace llm
      kvtrace llm Meta-Llama-3.1-70B --tp 8 --kv-dtype fp8
      kvtrace llm config.json --json
      cat config.json | kvtrace llm -
    """
    from kvtrace import api

    outcome = api.llm(
        None if name == "-" else name,
        text=opt.stdin_text() if name == "-" else None,
        tp=tp,
        pp=pp,
        dp_attention=dp_attention,
        kv_dtype=kv_dtype,
        block_size=block_size,
    )
    text = outcome.to_json() if as_json else "\n".join(outcome.lines(opt.screen_width()))
    result(text)
