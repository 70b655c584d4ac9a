"""`kvtrace ledger`: moving against recomputing for one request, without any log."""

from __future__ import annotations

from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import result
from kvtrace.errors import UsageError

_PATH_HELP = (
    "dram_pcie, pool_tcp, pool_rdma_bounce, pool_rdma_direct, local_nvme, pool_ssd, file_system, "
    "object_store, a store of `kvtrace hardware`, or a rate as 20GB/s; commas between [the eight]."
)

Paths = Annotated[list[str] | None, typer.Option(help=_PATH_HELP, autocompletion=completes("path"))]
Groups = Annotated[
    int, typer.Option("--dp", help="Groups with data-parallel attention, TP x PP GPUs each.")
]
Experts = Annotated[
    int | None, typer.Option("--ep", help="Ranks of whole experts [all with --dp, else 1].")
]


def ledger(
    llm: opt.Llm = None,
    hardware: opt.Hardware = None,
    tp: opt.Tp = None,
    pp: Annotated[int, typer.Option("--pp", help="Pipeline stages.")] = 1,
    dp: Groups = 1,
    ep: Experts = None,
    tokens: Annotated[int, typer.Option(help="Prompt tokens of the request.")] = 2000,
    cached: Annotated[int | None, typer.Option(help="Of these, cached [95 %].")] = None,
    path: Paths = None,
    table: Annotated[
        bool, typer.Option("--table", help="Add a table over prompt lengths.")
    ] = False,
    lengths: Annotated[
        str | None, typer.Option(help="Prompt lengths of the table [512 to 131072].")
    ] = None,
    kv_dtype: Annotated[
        str | None, typer.Option("--kv-dtype", help="bf16, fp8, fp8_ds_mla, int8, nvfp4, int4, …")
    ] = None,
    weight_dtype: opt.WeightDtype = None,
    cost_provider: opt.CostProvider = None,
    block_size: Annotated[
        int | None, typer.Option("--block-size", help="Round moves up to blocks of so many tokens.")
    ] = None,
    config: opt.Config = None,
    as_json: opt.Json = False,
) -> None:
    """What a hit saves, what each path takes to bring it, and from where on it pays.

    \b
    Examples:
      kvtrace ledger --llm Llama-3.1-70B --hardware H100 --tp 8 --tokens 2000 --cached 1900
      kvtrace ledger --llm DeepSeek-V3 --hardware H200 --path pool_tcp,local_nvme --table
      kvtrace ledger --llm Llama-3.1-8B --hardware A100 --path 1GB/s,20GB/s --json
      cat config.json | kvtrace ledger --llm - --hardware gpu.toml
    """
    from kvtrace import api
    from kvtrace.api.ledgers import default_lengths

    asked = _numbers(lengths) if lengths is not None else default_lengths() if table else ()
    settings = opt.settings_from(
        config,
        llm=opt.stdin_text() if llm == "-" else llm,
        hardware=hardware,
        tp=tp,
        weight_dtype=weight_dtype,
        cost_provider=cost_provider,
    )
    names = [word.strip() for item in path or () for word in item.split(",") if word.strip()]
    if path and not names:
        raise UsageError("KVT-U049", "`--path` names no path", hint="`--path pool_tcp,20GB/s`")
    outcome = api.ledger(
        tokens=tokens,
        cached=cached,
        paths=names,
        lengths=asked,
        kv_dtype=kv_dtype,
        block_size=block_size,
        pp=pp,
        dp=dp,
        ep=ep,
        settings=settings,
    )
    text = outcome.to_json() if as_json else "\n".join(outcome.lines(opt.screen_width()))
    result(text)


def _numbers(text: str) -> list[int]:
    words = [word for word in text.split(",") if word.strip()]
    try:
        found = [int(word) for word in words]
    except ValueError:
        found = []
    if not found:
        raise UsageError(
            "KVT-U047", f"`{text}` are no prompt lengths", hint="`--lengths 1000,8000`"
        )
    return found
