"""Options that several verbs share, declared once."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvtrace.cli.completing import completes, one_of
from kvtrace.cli.voice import detail, voice

if TYPE_CHECKING:
    from kvtrace.config import Settings, Value

_MOST_STDIN_BYTES = 64 * 1024 * 1024

Inputs = Annotated[
    list[str],
    typer.Argument(help="Files, directories, globs; plain or compressed.", metavar="PATH…"),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Output folder [reports/<input name>]."),
]
Llm = Annotated[
    str | None,
    typer.Option(
        help="Served LLM: a name, or a Hugging Face config.json.", autocompletion=completes("llm")
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(
        help="GPU name, or a hardware TOML file.",
        autocompletion=completes("gpu"),
    ),
]
Tp = Annotated[int | None, typer.Option("--tp", help="GPUs an instance (tensor parallel).")]
Instances = Annotated[int | None, typer.Option(help="Engine instances in the fleet.")]
Fleet = Annotated[str | None, typer.Option(help="Fleet TOML: instances, pool, DRAM, prices.")]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype", help="bf16, fp16 or fp8.", autocompletion=one_of("bf16", "fp16", "fp8")
    ),
]
WeightDtype = Annotated[
    str | None,
    typer.Option(
        "--weight-dtype",
        help="bf16, fp16, fp8 or fp4.",
        autocompletion=one_of("bf16", "fp16", "fp8", "fp4"),
    ),
]
CostProvider = Annotated[
    str | None,
    typer.Option(
        "--cost-provider",
        help="Prefill and decode times: kvtrace or aiconfigurator.",
        autocompletion=one_of(
            "kvtrace",
            "aiconfigurator",
            "aiconfigurator:vllm",
            "aiconfigurator:sglang",
            "aiconfigurator:trtllm",
        ),
    ),
]
Config = Annotated[Path | None, typer.Option(help="Settings file (TOML).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Lang = Annotated[
    str | None,
    typer.Option(
        help="Language of the report: en or zh.",
        autocompletion=one_of("en", "zh"),
    ),
]
Tz = Annotated[str | None, typer.Option(help="IANA zone of clocks that state none.")]
Year = Annotated[int | None, typer.Option(help="Year of clocks that state none.")]
BlockSize = Annotated[int | None, typer.Option("--block-size", help="Tokens a block, forced.")]
MaxRejectRate = Annotated[
    float | None, typer.Option("--max-reject-rate", help="Share of unusable records tolerated.")
]
AllowInertPickle = Annotated[
    bool | None,
    typer.Option(
        "--allow-inert-pickle", help="Read pickled request dumps, without running anything."
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(help="Local tokenizer.json or tiktoken file, for prompts that are text."),
]
BytesPerToken = Annotated[
    float | None,
    typer.Option("--bytes-per-token", help="For prompts that are text, without a tokenizer [4]."),
]
HashPrompts = Annotated[
    bool | None,
    typer.Option(
        "--hash-prompts/--no-hash-prompts",
        help="Make block keys of prompts that stand in the logs [on].",
    ),
]
Mapping = Annotated[
    str | None,
    typer.Option(help="Mapping TOML: fields, units and clock of JSON or CSV logs of your own."),
]
Salt = Annotated[str | None, typer.Option(help="Key of the hashes; the same salt joins runs.")]
Depth = Annotated[
    str | None,
    typer.Option(
        help="quick: replay the peak hour; full: everything.",
        autocompletion=one_of("quick", "full"),
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that replay [as many as pay]; results are equal."),
]


def stdin_text() -> str:
    """What stands on stdin; a config.json is a few kilobytes."""
    return sys.stdin.buffer.read(_MOST_STDIN_BYTES).decode("utf-8-sig", errors="replace")


def screen_width() -> int:
    """Columns of the terminal on stdout, 60 to 120; 100 where there is none."""
    if voice().output is not None or not sys.stdout.isatty():
        return 100
    return min(max(shutil.get_terminal_size().columns, 60), 120)


def settings_from(config: Path | None, **flags: Value) -> Settings:
    """Settings of one command line over environment, files and defaults."""
    from kvtrace.config import resolve_settings

    settings = resolve_settings(flags, config=config)
    for one in settings.public():
        if not one.is_default:
            detail(f"setting {one.name} = {one.value} ({one.origin})")
    return settings


def settings_of(context: typer.Context, config: Path | None) -> Settings:
    """Settings of a command whose options carry their names; the other options are its own."""
    from kvtrace.config import SETTINGS

    names = {spec.name for spec in SETTINGS}
    flags = {name: value for name, value in context.params.items() if name in names}
    return settings_from(config, **flags)
