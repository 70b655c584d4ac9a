"""`kvtrace analyze`: from logs to a verdict."""

from __future__ import annotations

from typing import Literal

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.gating import FailOn, stop_at_gates
from kvtrace.cli.progress import make_progress
from kvtrace.cli.voice import result


def analyze(
    context: typer.Context,
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
    workers: opt.Workers = None,
    lang: opt.Lang = None,
    fail_on: FailOn = None,
    as_json: opt.Json = False,
) -> None:
    """Read logs, measure reuse, replay the options, and say whether a pool would pay for itself.

    Writes report.html, audit.json and dataset/ into the output folder and prints a first screen.

    \b
    Examples:
      kvtrace analyze logs/
      kvtrace analyze trace.jsonl.zst --llm Llama-3.1-70B --hardware H100-SXM5 -o reports/trace
      kvtrace analyze logs/ --fail-on verdict=does_not_pay --fail-on 'net_negative_share>0.2'
    """
    from kvtrace import api

    gates = fail_on or []
    api.check_gates(gates)
    settings = opt.settings_of(context, config)
    watch = make_progress()
    audit = api.analyze(inputs, output=output, settings=settings, workers=workers, progress=watch)
    words: Literal["en", "zh"] = "zh" if settings.text("lang") == "zh" else "en"
    screen = audit.first_screen(width=opt.screen_width(), lang=words)
    result(audit.to_json() if as_json else "\n".join(screen))
    stop_at_gates(audit, gates)
