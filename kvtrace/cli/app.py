"""The typer application, and the one place where errors become words and exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Final

import typer

from kvtrace import __version__
from kvtrace.cli import (
    analyze,
    compare,
    cost,
    doctor,
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
    shells,
    sniff,
    synth,
    verify,
)
from kvtrace.cli.usage import said_of
from kvtrace.cli.verbs import Quiet, Verbose, verb
from kvtrace.cli.voice import Voice, complain, detail, speak, voice
from kvtrace.errors import ExitCode, KvtraceError, UsageError

app = typer.Typer(
    name="kvtrace",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Replay LLM-serving logs and learn whether pooled KV-cache storage would pay for itself.",
    epilog="Start with: kvtrace analyze logs/",
)
_VERBS: Final[tuple[tuple[str, Callable[..., None], str], ...]] = (
    ("analyze", analyze.analyze, "From logs to a verdict in HTML."),
    ("ingest", ingest.ingest, "From logs to a dataset of Parquet tables."),
    ("init", init.init, "A fleet file: guessed from logs, the rest asked."),
    ("query", query.query, "List, show and run the queries of the catalogue."),
    ("replay", replay.replay, "What each option would have done, hit by hit."),
    ("policies", policies.policies, "Eviction policies against what any cache could do."),
    ("pooling", pooling.pooling, "Private caches against one shared pool."),
    ("report", report.report, "HTML, Markdown or an ADR, from audit.json alone."),
    ("compare", compare.compare, "Two audits side by side."),
    ("explain", explain.explain, "What an id, a code or a word means."),
    ("formats", formats.formats, "What can be read, and what it supplies."),
    ("sniff", sniff.sniff, "What each file is, and what would make it say more."),
    ("export", export.export, "An anonymised trace for other tools."),
    ("verify", verify.verify, "The headline numbers again, by another way."),
    ("hardware", hardware.hardware, "What GPUs, links and stores can do, with sources."),
    ("ledger", ledger.ledger, "Move against recompute for one request, without a log."),
    ("llm", llm.llm, "What an LLM stores per token and computes per prefill."),
    ("synth", synth.synth, "Sample logs with a story, from a seed."),
    ("doctor", doctor.doctor, "What is installed, set and free here; what is missing."),
)
_NAMES: Final = frozenset({*(name for name, _, _ in _VERBS), "cost"})
for _name, _work, _short in _VERBS:
    app.command(_name, short_help=_short)(verb(_work))
app.add_typer(cost.app, name="cost", short_help="The cost model against measurements.")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kvtrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "-V", "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    speak(Voice(quiet, verbose))


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.TERMINATED)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.INTERRUPTED)


def _completed() -> int | None:
    """The exit code of an answer to a shell; None where no shell asks."""
    if not os.environ.get(shells.VARIABLE):
        return None
    answer = shells.answer(typer.main.get_command(app), os.environ)
    if answer is None:
        return None
    text, code = answer
    typer.echo(text)
    return code


def _guarded(arguments: Sequence[str]) -> int:
    try:
        completed = _completed()
        if completed is not None:
            return completed
        code = app(args=list(arguments), prog_name="kvtrace", standalone_mode=False)
    except typer.TyperException as fault:
        return _misused(fault, next((one for one in arguments if one in _NAMES), ""))
    except typer.Abort:  # the end of stdin, where something was asked
        return _failed(UsageError("KVT-U107", "nobody answered", hint="`--yes` asks nothing"))
    except KvtraceError as error:
        return _failed(error)
    except BrokenPipeError:
        # The reader of our output went away (`kvtrace … | head`); nothing is wrong on our side.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except OSError as error:
        complain(f"error[KVT-O001]: {error.strerror or error}")
        if error.filename is not None:
            complain(f"  at: {error.filename}")
        return int(ExitCode.OUTPUT)
    return code if isinstance(code, int) else int(ExitCode.DONE)


def _misused(fault: typer.TyperException, name: str) -> int:
    """The words for a command line that cannot be read."""
    said = said_of(fault, name)
    complain(said if isinstance(said, str) else said.render())
    return int(ExitCode.USAGE)


def _failed(error: KvtraceError) -> int:
    """The words for an error, with what led to it where more was asked for."""
    complain(error.render())
    cause = error.__cause__
    while cause is not None and voice().is_verbose:
        detail(f"\ncaused by {type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return int(error.exit_code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code. Nothing is raised, whatever happens."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    speak(Voice())
    try:
        return _guarded(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(ExitCode.USAGE)
        if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            _say_how_to_resume(code, arguments)
        return code
    except BaseException as error:  # a library's panic is no Exception; nothing gets past here
        if os.environ.get("KVTRACE_DEBUG"):
            raise
        complain(f"error[KVT-B001]: this is a bug in kvtrace: {type(error).__name__}")
        complain("\nhint: run again with KVTRACE_DEBUG=1 and report what it prints")
        return int(ExitCode.BUG)


def _say_how_to_resume(code: int, arguments: Sequence[str]) -> None:
    """After Ctrl-C or SIGTERM: what is left, and the command that goes on from there."""
    how = "interrupted" if code == ExitCode.INTERRUPTED else "terminated"
    complain(f"{how}: what was finished is kept, nothing half-written stands under a final name")
    complain(f"\nhint: to go on, run it again: {shlex.join(('kvtrace', *arguments))}")
