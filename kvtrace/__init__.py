"""kvtrace: replay LLM-serving logs and learn whether pooled KV-cache storage would pay off.

`audit = kvtrace.analyze(["logs/"])`, then `audit.verdict`, `audit.findings`, `audit.to_html()`.
The names below load what they need on first use, so that `kvtrace --help` stays quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from kvtrace.version import __version__ as __version__

if TYPE_CHECKING:
    from kvtrace.api import Audit, analyze, ingest, load_audit, query, replay, report
    from kvtrace.errors import KvtraceError

__all__ = ["Audit", "KvtraceError", "analyze", "ingest", "load_audit", "query", "replay", "report"]
_HOME: Final = dict.fromkeys(__all__, "kvtrace.api") | {"KvtraceError": "kvtrace.errors"}


class _Verb(ModuleType):
    """A part of the package whose name is that of a verb: calling it calls the verb."""

    def __call__(self, *arguments: object, **named: object) -> object:
        return getattr(import_module("kvtrace.api"), self.__name__.rpartition(".")[2])(
            *arguments, **named
        )


class _Package(ModuleType):
    """Python binds a part to its package when it is loaded; the verb of that name stays."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOME and isinstance(value, ModuleType):
            value.__class__ = _Verb
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'kvtrace' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
