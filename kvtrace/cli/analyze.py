"""`kvtrace analyze`: from logs to a verdict."""

from __future__ import annotations

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.progress import make_progress


def analyze(
    inputs: opt.Inputs,
    output: opt.Output = None,
    llm: opt.Llm = None,
    hardware: opt.Hardware = None,
    tp: opt.Tp = None,
    instances: opt.Instances = None,
    fleet: opt.Fleet = None,
    kv_dtype: opt.KvDtype = None,
    weight_dtype: opt.WeightDtype = None,
    cost_provider: opt.CostProvider = None,
    config: opt.Config = None,
    tz: opt.Tz = None,
    year: opt.Year = None,
    block_size: opt.BlockSize = None,
    max_reject_rate: opt.MaxRejectRate = None,
    allow_inert_pickle: opt.AllowInertPickle = None,
    tokenizer: opt.Tokenizer = None,
    bytes_per_token: opt.BytesPerToken = None,
    hash_prompts: opt.HashPrompts = None,
    mapping: opt.Mapping = None,
    salt: opt.Salt = None,
    depth: opt.Depth = None,
    lang: opt.Lang = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Read logs, measure reuse, replay the options, and say whether a pool would pay for itself.

    Writes report.html, audit.json and dataset/ into the output folder and prints a first screen.

    \b
    Examples:
      kvtrace analyze logs/
      kvtrace analyze trace.jsonl.zst --llm Llama-3.1-70B --hardware H100-SXM5 -o reports/chat
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
        tz=tz,
        year=year,
        block_size=block_size,
        max_reject_rate=max_reject_rate,
        allow_inert_pickle=allow_inert_pickle,
        tokenizer=tokenizer,
        bytes_per_token=bytes_per_token,
        hash_prompts=hash_prompts,
        mapping=mapping,
        salt=salt,
        depth=depth,
        lang=lang,
    )
    audit = api.analyze(
        inputs, output=output, settings=settings, progress=make_progress(quiet=quiet)
    )
    screen = audit.first_screen(width=opt.screen_width())
    typer.echo(audit.to_json() if as_json else "\n".join(screen))
