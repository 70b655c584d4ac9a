"""`kvtrace pooling`: private caches against one shared pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import result
from kvtrace.errors import UsageError

_ROUTING_HELP = (
    "round_robin, session_sticky, kv_centric, kv_centric_exact; commas between [the first three]."
)


def pooling(
    dataset: Annotated[Path, typer.Argument(help="Output folder of ingest or analyze.")],
    instances: Annotated[str, typer.Option(help="Numbers of instances.")] = "2,4,8,16",
    routing: Annotated[
        str | None,
        typer.Option(
            help=_ROUTING_HELP,
            autocompletion=completes("routing"),
        ),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(help="Total capacities: blocks, bytes or a share, as 10000,50GiB,10%."),
    ] = None,
    hbm: Annotated[
        str | None, typer.Option(help="HBM for KV of an instance [of the hardware].")
    ] = None,
    dram: Annotated[
        str | None, typer.Option(help="Idle DRAM of an instance; 0 is none [of the fleet].")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="Pool above them, of all instances [of the fleet].")
    ] = None,
    llm: opt.Llm = None,
    hardware: opt.Hardware = None,
    tp: opt.Tp = None,
    fleet: opt.Fleet = None,
    kv_dtype: opt.KvDtype = None,
    config: opt.Config = None,
    as_json: opt.Json = False,
) -> None:
    """What private caches serve, by instances and routing, and what one shared pool would add.

    Against private caches of the same bytes, and above HBM and idle DRAM. Idealised LRU caches:
    blocks are there at once. The figures stay in the dataset for `kvtrace query`.

    \b
    Examples:
      kvtrace pooling reports/chat
      kvtrace pooling reports/chat --instances 4 --capacity 10000,50GiB,10%
      kvtrace pooling reports/chat --routing kv_centric_exact --hbm 100GiB --dram 0 --pool 4TiB
    """
    from kvtrace import api

    settings = opt.settings_from(
        config, llm=llm, hardware=hardware, tp=tp, fleet=fleet, kv_dtype=kv_dtype
    )
    outcome = api.pooling(
        dataset,
        instances=_numbers(instances),
        **({} if routing is None else {"routings": _words(routing)}),
        capacity=capacity,
        hbm=hbm,
        dram=dram,
        pool=pool,
        settings=settings,
    )
    result(outcome.to_json() if as_json else "\n".join(outcome.summary()))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError as error:
        raise UsageError(
            "KVT-U045", f"`{text}` are no numbers of instances", hint="`--instances 2,4,8`"
        ) from error
