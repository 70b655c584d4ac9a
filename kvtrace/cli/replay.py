"""`kvtrace replay`: what each option or scenario would have done with these requests."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.progress import make_progress
from kvtrace.cli.voice import is_coloured, result

if TYPE_CHECKING:
    from kvtrace.api import ReplayAsk, ReplayOutcome, SweepOutcome
    from kvtrace.config import Settings
    from kvtrace.scenarios.load import Load

Dataset = Annotated[Path, typer.Argument(help="Output folder of ingest or analyze; or logs.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="Option id such as pool_dram_tcp; repeat for more.",
        autocompletion=completes("option"),
    ),
]
Scenarios = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        help="Scenario: a TOML file, a shipped name or an option; repeat.",
        autocompletion=completes("scenario"),
    ),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(help="Key and values, as pool.capacity=1TB,2TB; repeat for a grid."),
]
OneAtATime = Annotated[
    bool, typer.Option("--one-at-a-time", help="The start, then each swept value alone.")
]
Requests = Annotated[int | None, typer.Option(help="Only the first so many requests.")]
Growth = Annotated[
    int | None, typer.Option(help="So many copies of each session, superposed; roots are shared.")
]
Thin = Annotated[float | None, typer.Option(help="Keep this share of the sessions, as 0.5.")]
Compress = Annotated[
    float | None, typer.Option(help="Arrivals so many times closer together (not growth).")
]
ClosedLoop = Annotated[
    bool, typer.Option("--closed-loop", help="A turn comes when its session is done with the last.")
]
Think = Annotated[
    str | None, typer.Option(help="Closed loop: think time between turns, as 20s [as logged].")
]
TraceOut = Annotated[
    Path | None, typer.Option("--trace-out", help="Timelines for a trace viewer (Perfetto).")
]
Window = Annotated[
    str | None, typer.Option(help="What --trace-out holds, as 0s..60s [the first minute].")
]


def replay(
    dataset: Dataset,
    output: opt.Output = None,
    option: Options = None,
    scenario: Scenarios = None,
    sweep: Sweep = None,
    one_at_a_time: OneAtATime = False,
    requests: Requests = None,
    growth: Growth = None,
    thin: Thin = None,
    compress: Compress = None,
    closed_loop: ClosedLoop = False,
    think: Think = None,
    trace_out: TraceOut = None,
    window: Window = None,
    workers: opt.Workers = None,
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
) -> None:
    """Replay a dataset through HBM, local DRAM and pools, and price every hit.

    Logs are read first, into the output folder. What a scenario file states wins over the settings.
    Timelines, hits by tier and bytes by link stay in the dataset for `kvtrace query`;
    docs/replay.md has the keys of scenarios.

    \b
    Examples:
      kvtrace replay reports/chat --llm Llama-3.1-70B --hardware H100-SXM5
      kvtrace replay trace.jsonl.zst --option hbm_only --option pool_dram_tcp --json
      kvtrace replay reports/chat --scenario ours.toml --growth 2 --trace-out ours.json
      kvtrace replay reports/chat --scenario ours.toml --sweep pool.capacity=1TB,2TB --one-at-a-time
    """
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
    load = _load(requests, thin, growth, compress, think, closed_loop=closed_loop)
    asked = _asked(option, scenario, load, trace_out, window)
    _check_together(sweep, trace_out, window, one_at_a_time=one_at_a_time)
    places = dataset, output
    outcome = _run(places, asked, sweep, settings, workers, one_at_a_time=one_at_a_time)
    result(outcome.to_json() if as_json else "\n".join(map(_shown, outcome.summary())))


def _check_together(
    sweep: list[str] | None, trace_out: Path | None, window: str | None, *, one_at_a_time: bool
) -> None:
    """Refuse a flag that would do nothing beside the others.

    Raises:
        UsageError: with what is missing or too much.
    """
    from kvtrace.errors import UsageError

    wrong = {
        "`--trace-out` draws no sweep": (trace_out is not None and bool(sweep), "one replay"),
        "`--window` without `--trace-out`": (window is not None and trace_out is None, "both"),
        "`--one-at-a-time` without `--sweep`": (one_at_a_time and not sweep, "both"),
    }
    for message, (is_wrong, wanted) in wrong.items():
        if is_wrong:
            raise UsageError("KVT-U028", message, hint=f"ask for {wanted}, or leave it out")


def _shown(line: str) -> str:
    """A critical finding is red on a terminal; its mark and word say the same without."""
    is_red = line.startswith("!! critical") and is_coloured(sys.stdout)
    return typer.style(line, fg=typer.colors.RED) if is_red else line


def _run(
    places: tuple[Path, Path | None],
    asked: ReplayAsk,
    sweep: list[str] | None,
    settings: Settings,
    workers: int | None,
    *,
    one_at_a_time: bool,
) -> ReplayOutcome | SweepOutcome:
    from kvtrace import api

    watch = make_progress()
    dataset, output = places
    if not sweep:
        return api.replay(
            dataset,
            asked=asked,
            output=output,
            workers=workers,
            settings=settings,
            progress=watch,
        )
    return api.sweep(
        dataset,
        sweep,
        asked=asked,
        one_at_a_time=one_at_a_time,
        output=output,
        workers=workers,
        settings=settings,
        progress=watch,
    )


def _asked(
    options: list[str] | None,
    scenarios: list[str] | None,
    load: Load,
    trace_out: Path | None,
    window: str | None,
) -> ReplayAsk:
    from kvtrace import api

    asked = api.ReplayAsk(
        options=tuple(options or ()),
        scenarios=tuple(scenarios or ()),
        load=load,
        trace_out=trace_out,
    )
    return asked if window is None else replace(asked, window=api.parse_window(window))


def _load(
    requests: int | None,
    thin: float | None,
    growth: int | None,
    compress: float | None,
    think: str | None,
    *,
    closed_loop: bool,
) -> Load:
    """The load as the flags state it; a think time means a closed loop."""
    from kvtrace.scenarios.load import Load, check_load, parse_think

    stated = {"requests": requests, "thin": thin, "growth": growth, "compress": compress}
    load = replace(Load(), **{name: value for name, value in stated.items() if value is not None})  # type: ignore[arg-type]
    if closed_loop or think is not None:
        load = replace(
            load, closed_loop=True, think_s=None if think is None else parse_think(think)
        )
    return check_load(load)
