"""The measurement that is worth most when the data cannot tell, and the flag that gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import NextMeasurement
from kvtrace.audit.thresholds import MIN_REQUESTS
from kvtrace.schema.manifest import Manifest, SourceEntry


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one engine or gateway is made to log block identity."""

    engine: str
    flag: str


BLOCK_IDENTITY: Final[tuple[Recipe, ...]] = (
    Recipe(
        "vllm",
        "VLLM_LOGGING_LEVEL=DEBUG vllm serve … --enable-log-requests --enable-log-outputs",
    ),
    Recipe(
        "sglang",
        "--log-requests --log-requests-level 3 --enable-cache-report --enable-metrics",
    ),
    Recipe("dynamo", "DYN_REQUEST_TRACE=1"),
    Recipe("lmcache", "--lookup-hash-log-dir DIR"),
    Recipe("trtllm", "enable_iter_perf_stats: true, return_perf_metrics: true"),
)
"""Read from upstream sources; vLLM ≥ 0.10 logs no request without the flag. No text is stored:
kvtrace hashes token ids while it reads."""

_FALLBACK: Final = "a log with token ids or block hashes of each request, such as vLLM's: " + (
    BLOCK_IDENTITY[0].flag
)


def reuse_measurement(manifest: Manifest) -> NextMeasurement:
    """What would show the reuse of this service."""
    return NextMeasurement(
        question="How much of the prefill is reusable, and at which capacity?",
        flag=_flag(manifest.sources),
        hours=2.0,
        settles="gives every request its block identity, so that any cache size can be replayed",
    )


def longer_window(manifest: Manifest) -> NextMeasurement:
    """The same log over a longer time."""
    return NextMeasurement(
        question="Does the reuse of a busy day look like that of this window?",
        flag=_same_log(manifest.sources),
        hours=24.0,
        settles=f"covers the daily peak and more than {MIN_REQUESTS.value:,.0f} requests",
    )


def _flag(sources: list[SourceEntry]) -> str:
    for source in _by_importance(sources):
        name = f"{source.engine or ''} {source.format}".lower().replace("-", "").replace("_", "")
        for recipe in BLOCK_IDENTITY:
            if recipe.engine in name:
                return recipe.flag
    return _FALLBACK


def _same_log(sources: list[SourceEntry]) -> str:
    ordered = _by_importance(sources)
    return f"the same {ordered[0].format} log" if ordered else _FALLBACK


def _by_importance(sources: list[SourceEntry]) -> list[SourceEntry]:
    order = {"headline": 0, "joined": 1, "beside": 2}
    return sorted(sources, key=lambda source: (order[source.role], source.source_id))
