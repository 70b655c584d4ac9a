"""The typer application, and the one place where errors become words and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

from kvtrace import __version__
from kvtrace.cli import (
    analyze,
    compare,
    cost,
    explain,
    export,
    formats,
    hardware,
    ingest,
    init,
    ledger,
    llm,
    policies,
    pooling,
    query,
    replay,
    report,
    sniff,
    synth,
    verify,
)
from kvtrace.errors import ExitCode, KvtraceError

app = typer.Typer(
    name="kvtrace",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Replay LLM-serving logs and learn whether pooled KV-cache storage would pay for itself.",
    epilog="Start with: kvtrace analyze logs/",
)
app.command("analyze", short_help="From logs to a verdict in HTML.")(analyze.analyze)
app.command("ingest", short_help="From logs to a dataset of Parquet tables.")(ingest.ingest)
app.command("init", short_help="A fleet file: guessed from logs, the rest asked.")(init.init)
app.command("query", short_help="List, show and run the queries of the catalogue.")(query.query)
app.command("replay", short_help="What each option would have done, hit by hit.")(replay.replay)
app.command("policies", short_help="Eviction policies against what any cache could do.")(
    policies.policies
)
app.command("pooling", short_help="Private caches against one shared pool.")(pooling.pooling)
app.add_typer(cost.app, name="cost", short_help="The cost model against measurements.")
app.command("report", short_help="HTML, Markdown or an ADR, from audit.json alone.")(report.report)
app.command("compare", short_help="Two audits side by side.")(compare.compare)
app.command("explain", short_help="What an id, a code or a word means.")(explain.explain)
app.command("formats", short_help="What can be read, and what it supplies.")(formats.formats)
app.command("sniff", short_help="What each file is, and what would make it say more.")(sniff.sniff)
app.command("export", short_help="An anonymised trace for other tools.")(export.export)
app.command("verify", short_help="The headline numbers again, by another way.")(verify.verify)
app.command("hardware", short_help="What GPUs, links and stores can do, with sources.")(
    hardware.hardware
)
app.command("ledger", short_help="Move against recompute for one request, without a log.")(
    ledger.ledger
)
app.command("llm", short_help="What an LLM stores per token and computes per prefill.")(llm.llm)
app.command("synth", short_help="Sample logs with a story, from a seed.")(synth.synth)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kvtrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.TERMINATED)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.INTERRUPTED)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _guarded(arguments: Sequence[str]) -> int:
    try:
        app(args=list(arguments), prog_name="kvtrace")
    except KvtraceError as error:
        _say(error.render())
        return int(error.exit_code)
    except BrokenPipeError:
        # The reader of our output went away (`kvtrace … | head`); nothing is wrong on our side.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except OSError as error:
        _say(f"error[KVT-O001]: {error.strerror or error}")
        if error.filename is not None:
            _say(f"  at: {error.filename}")
        return int(ExitCode.OUTPUT)
    return int(ExitCode.DONE)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code.

    Raises:
        SystemExit: from typer, with its own code for usage errors and help.
    """
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return _guarded(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(ExitCode.USAGE)
        if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            _say("stopped; run the same command again to go on")
        return code
    except BaseException as error:  # a library's panic is no Exception; nothing gets past here
        if os.environ.get("KVTRACE_DEBUG"):
            raise
        _say(f"error[KVT-B001]: this is a bug in kvtrace: {type(error).__name__}")
        _say("\nhint: run again with KVTRACE_DEBUG=1 and report what it prints")
        return int(ExitCode.BUG)
