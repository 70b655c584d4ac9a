"""`kvtrace policies`: eviction policies at some capacities, against the bounds of them all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import result

_POLICY_HELP = (
    "lru, leaf_lru, fifo, flat_fifo, lfu, arc, s3_fifo, length_aware, ttl; commas between [all]."
)


def policies(
    dataset: Annotated[Path, typer.Argument(help="Output folder of ingest or analyze.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help=_POLICY_HELP,
            autocompletion=completes("policy"),
        ),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(help="Blocks, bytes or a share, as 10000,50GiB,10% [1% to 100%]."),
    ] = None,
    admission: Annotated[str, typer.Option(help="all, second-use or both.")] = "all",
    weight: Annotated[
        str, typer.Option(help="blocks: each takes one place; tokens: a partial block less.")
    ] = "blocks",
    ttl: Annotated[str, typer.Option(help="Time to live of policy ttl, as 300s.")] = "300s",
    llm: opt.Llm = None,
    kv_dtype: opt.KvDtype = None,
    config: opt.Config = None,
    as_json: opt.Json = False,
) -> None:
    """What each eviction policy serves, and the most that any could: is it policy or capacity?

    Idealised: blocks are there at once. The figures stay in the dataset for `kvtrace query`.

    \b
    Examples:
      kvtrace policies reports/chat
      kvtrace policies reports/chat --policy lru,arc --capacity 10000,10%
      kvtrace policies reports/chat --admission both --capacity 50GiB --llm Meta-Llama-3.1-70B
    """
    from kvtrace import api

    outcome = api.policies(
        dataset,
        policies=None if policy is None else _words(policy),
        capacity=capacity,
        admission=admission,
        weight=weight,
        ttl=ttl,
        settings=opt.settings_from(config, llm=llm, kv_dtype=kv_dtype),
    )
    result(outcome.to_json() if as_json else "\n".join(outcome.summary()))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
