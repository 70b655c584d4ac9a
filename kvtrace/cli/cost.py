"""`kvtrace cost`: what the cost model is worth, and its constants fitted to own latencies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.verbs import verb
from kvtrace.cli.voice import result

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _cost() -> None:
    """Check the cost model against measurements, or fit it to your own.

    \b
    Examples:
      kvtrace cost validate points.csv
      kvtrace cost calibrate reports/chat -o fitted.toml
    """


def validate(
    points: Annotated[
        Path, typer.Argument(help="CSV of measurements.", metavar="POINTS.csv", show_default=False)
    ],
    as_json: opt.Json = False,
) -> None:
    """Predict each measurement of a file, and say how far off: by kind, by series, by point.

    A point that the model cannot express is listed with the reason.

    \b
    Examples:
      kvtrace cost validate points.csv
      kvtrace cost validate points.csv --json
    """
    from kvtrace.api.cost import cost_validate

    outcome = cost_validate(points)
    result(outcome.to_json() if as_json else "\n".join(outcome.summary()))


def calibrate(
    dataset: Annotated[Path, typer.Argument(help="Output folder of ingest or analyze.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Hardware TOML with the fitted constants.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(help="Scenario TOML with the scheduler's settings: queues are replayed."),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help="Fit this one, as prefill_rate; repeat [what the data can tell]."),
    ] = None,
    chunk_tokens: Annotated[
        int | None, typer.Option("--chunk-tokens", help="Prompt tokens of one engine step [8192].")
    ] = None,
    assume_no_hits: Annotated[
        bool,
        typer.Option("--assume-no-hits", help="Unknown cached tokens are none, caching or not."),
    ] = False,
    llm: opt.Llm = None,
    hardware: opt.Hardware = None,
    tp: opt.Tp = None,
    instances: opt.Instances = None,
    kv_dtype: opt.KvDtype = None,
    weight_dtype: opt.WeightDtype = None,
    config: opt.Config = None,
    as_json: opt.Json = False,
) -> None:
    """Fit prefill, decode and links to the earlier half of a dataset; show errors on the later one.

    A constant that the data cannot tell is refused with the reason. The file is a hardware TOML:
    every command takes it with --hardware.

    \b
    Examples:
      kvtrace cost calibrate reports/chat --llm Llama-3.1-8B --hardware RTX-4090 -o fitted.toml
      kvtrace cost calibrate reports/chat --scenario scheduler.toml --json
    """
    from kvtrace.api.calibrate import CalibrationAsk, cost_calibrate

    asked = CalibrationAsk(
        scenario=scenario,
        parameters=tuple(parameter) if parameter else None,
        assumes_no_hits=assume_no_hits,
        output=output,
    )
    if chunk_tokens is not None:
        asked = replace(asked, chunk_tokens=chunk_tokens)
    settings = opt.settings_from(
        config,
        llm=llm,
        hardware=hardware,
        tp=tp,
        instances=instances,
        kv_dtype=kv_dtype,
        weight_dtype=weight_dtype,
    )
    outcome = cost_calibrate(dataset, asked=asked, settings=settings)
    result(outcome.to_json() if as_json else "\n".join(outcome.summary()))


app.command("validate", short_help="Predicted against measured, for a file of points.")(
    verb(validate)
)
app.command("calibrate", short_help="Fit the cost model to a dataset's own latencies.")(
    verb(calibrate)
)
