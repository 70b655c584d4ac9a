"""What every verb has: `-q`, `-v`, and `-o` where its result can be written."""

from __future__ import annotations

import functools
import inspect
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from kvtrace.cli.voice import Voice, detail, speak, voice

try:
    import resource
except ImportError:  # pragma: no cover (Windows has none)
    resource = None  # type: ignore[assignment]

Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only results and errors.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Settings and their origin, time, memory: stderr.")
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="File for the result; .json: as JSON [stdout]."),
]
_KIND: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_ADDED: Final = {"output": (Output, None), "quiet": (Quiet, False), "verbose": (Verbose, False)}


def verb(work: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options that every verb has; its own `output` stays what it is."""
    signature = inspect.signature(work, eval_str=True)
    own = dict(signature.parameters)
    added = {
        name: inspect.Parameter(name, _KIND, default=default, annotation=kind)
        for name, (kind, default) in _ADDED.items()
        if name not in own
    }

    @functools.wraps(work)
    def run(**given: object) -> None:
        quiet, verbose = bool(given.pop("quiet")), bool(given.pop("verbose"))
        output = given.pop("output") if "output" in added else None
        file = output if isinstance(output, Path) else None
        if file is not None and file.suffix.lower() == ".json" and "as_json" in own:
            given["as_json"] = True
        before = voice()
        speak(Voice(before.is_quiet or quiet, before.is_verbose or verbose, file))
        started_s = time.monotonic()
        _introduce()
        try:
            work(**given)
        finally:
            _conclude(time.monotonic() - started_s)

    parameters = [*own.values(), *added.values()]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return run


def _introduce() -> None:
    from kvtrace import __version__

    detail(f"kvtrace {__version__} on Python {platform.python_version()}, {sys.platform}")


def _conclude(seconds: float) -> None:
    text = f"took {seconds:.1f} s"
    if resource is not None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kib = peak // 1024 if sys.platform == "darwin" else peak
        text = f"{text}, peak memory {kib / 1024:,.0f} MiB"
    detail(text)
