"""kvtrace: replay LLM-serving logs and learn whether pooled KV-cache storage would pay off.

`audit = kvtrace.analyze(["logs/"])`, then `audit.verdict`, `audit.findings`, `audit.to_html()`.
The names below load what they need on first use, so that `kvtrace --help` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from kvtrace.version import __version__ as __version__

if TYPE_CHECKING:
    from kvtrace.api import Audit, analyze, ingest, load_audit, query, replay, report
    from kvtrace.errors import KvtraceError

__all__ = ["Audit", "KvtraceError", "analyze", "ingest", "load_audit", "query", "replay", "report"]
_HOME: Final = dict.fromkeys(__all__, "kvtrace.api") | {"KvtraceError": "kvtrace.errors"}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'kvtrace' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
