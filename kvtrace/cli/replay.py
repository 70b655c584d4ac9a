"""`kvtrace replay`: what each option would have done with these requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.progress import make_progress


def replay(
    dataset: Annotated[Path, typer.Argument(help="Output folder of ingest or analyze.")],
    option: Annotated[
        list[str] | None, typer.Option(help="Option id such as pool_dram_tcp; repeat for more.")
    ] = None,
    llm: opt.Llm = None,
    hardware: opt.Hardware = None,
    tp: opt.Tp = None,
    instances: opt.Instances = None,
    fleet: opt.Fleet = None,
    kv_dtype: opt.KvDtype = None,
    weight_dtype: opt.WeightDtype = None,
    cost_provider: opt.CostProvider = None,
    config: opt.Config = None,
    depth: opt.Depth = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Replay a dataset through HBM, local DRAM and pools, and price every hit.

    \b
    Examples:
      kvtrace replay reports/chat --llm Llama-3.1-70B --hardware H100-SXM5
      kvtrace replay reports/chat --option hbm_only --option pool_dram_tcp --json
    """
    from kvtrace import api

    settings = opt.settings_from(
        config,
        llm=llm,
        hardware=hardware,
        tp=tp,
        instances=instances,
        fleet=fleet,
        kv_dtype=kv_dtype,
        weight_dtype=weight_dtype,
        cost_provider=cost_provider,
        depth=depth,
    )
    outcome = api.replay(
        dataset, options=option, settings=settings, progress=make_progress(quiet=quiet)
    )
    typer.echo(outcome.to_json() if as_json else "\n".join(outcome.summary()))
