"""The ledger with the interval of each figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.interval import Interval, figure_intervals
from kvtrace.cost.ledger import Ledger, build_ledger
from kvtrace.cost.tier_paths import find_path, write_path
from kvtrace.cost.ways import WAYS, Way

COMBINED: Final = (
    "each constant is moved alone to its low and high end; the changes upwards add in quadrature, "
    "and so do those downwards (constants that err independently)"
)
"""How the intervals come about, for a reader."""


@dataclass(frozen=True, slots=True)
class PathIntervals:
    """Intervals of one path's account."""

    move_s: Interval
    ttft_change_s: Interval
    gpu_seconds_freed_sync: Interval
    write_s: Interval | None
    path_bytes_per_s: Interval
    break_even_low_bytes_per_s: float | None
    """Null where no rate is enough even at the best end."""
    break_even_high_bytes_per_s: float | None
    """Null where at the worst end no rate is enough."""
    way_stall_s: dict[Way, Interval]
    """By way of loading."""
    way_ttft_change_s: dict[Way, Interval]

    @property
    def is_settled(self) -> bool:
        """Whether the verdict is the same over the whole interval."""
        return self.ttft_change_s.excludes_zero


@dataclass(frozen=True, slots=True)
class LedgerIntervals:
    """A ledger, the intervals of its figures, and the constants that have one."""

    ledger: Ledger
    recompute_s: Interval
    gpu_seconds_freed: Interval
    paths: dict[str, PathIntervals]


def ledger_intervals(
    deployment: Deployment,
    *,
    requests: Sequence[tuple[int, int]],
    paths: Sequence[str],
    block_size_tokens: int | None = None,
) -> list[LedgerIntervals]:
    """The ledger of each request (tokens, cached tokens) with intervals.

    Raises:
        UsageError: an unknown path, or a request without a hit or without a token to compute.
    """
    ledgers = _ledgers(deployment, requests, paths, block_size_tokens)
    spans = figure_intervals(
        deployment,
        lambda other: _figures(_ledgers(other, requests, paths, block_size_tokens, quick=True)),
        ranged_constants(deployment, paths),
    )
    return [
        LedgerIntervals(
            ledger=ledger,
            recompute_s=_floored(spans[f"{row}.recompute_s"]),
            gpu_seconds_freed=_floored(spans[f"{row}.gpu_seconds_freed"]),
            paths={
                path.path_id: _path_intervals(spans, f"{row}.{path.path_id}")
                for path in ledger.paths
            },
        )
        for row, ledger in enumerate(ledgers)
    ]


def ranged_constants(deployment: Deployment, paths: Sequence[str]) -> tuple[Constant, ...]:
    """The constants with an interval that prefill and these paths follow from, each once."""
    seen: dict[str, Constant] = {}
    used = [*deployment.hardware.gpu.constants(), *deployment.prefill.evidence]
    for path in paths:
        used += find_path(deployment, path).evidence
    for constant in (*used, *_beside(deployment)):
        if constant.low is not None or constant.high is not None:
            seen.setdefault(constant.id, constant)
    return tuple(seen.values())


def _beside(deployment: Deployment) -> tuple[Constant, ...]:
    """What paths cross besides the constants that they name."""
    hardware = deployment.hardware
    return (hardware.dram_read_bytes_per_s, hardware.dram_write_bytes_per_s)


def _ledgers(
    deployment: Deployment,
    requests: Sequence[tuple[int, int]],
    paths: Sequence[str],
    block_size_tokens: int | None,
    *,
    quick: bool = False,
) -> list[Ledger]:
    built = [find_path(deployment, path) for path in paths]
    ways_in = {path: write_path(deployment, path) for path in paths}
    return [
        build_ledger(
            deployment,
            tokens=tokens,
            cached_tokens=cached,
            paths=built,
            writes={one.path_id: ways_in[name] for name, one in zip(paths, built, strict=True)},
            block_size_tokens=block_size_tokens,
            depth="figures" if quick else "whole",
        )
        for tokens, cached in requests
    ]


def _figures(ledgers: Sequence[Ledger]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for row, ledger in enumerate(ledgers):
        figures[f"{row}.recompute_s"] = ledger.recompute_s
        figures[f"{row}.gpu_seconds_freed"] = ledger.gpu_seconds_freed
        for path in ledger.paths:
            key = f"{row}.{path.path_id}"
            figures[f"{key}.move_s"] = path.move_s
            figures[f"{key}.ttft_change_s"] = path.ttft_change_s
            figures[f"{key}.gpu_seconds_freed_sync"] = path.gpu_seconds_freed_sync
            if path.write_s is not None:
                figures[f"{key}.write_s"] = path.write_s
            figures[f"{key}.path_bytes_per_s"] = path.path_bytes_per_s
            figures[f"{key}.s_per_byte"] = _spare(ledger, path.fixed_s)
            for way in path.ways:
                figures[f"{key}.{way.way}.stall_s"] = way.stall_s
                figures[f"{key}.{way.way}.ttft_change_s"] = way.ttft_change_s
    return figures


def _spare(ledger: Ledger, fixed_s: float) -> float:
    """Seconds that a byte may take: 1 / B*; zero or less where no rate is enough."""
    return (ledger.recompute_s - fixed_s) / ledger.kv_bytes if ledger.kv_bytes else 0.0


def _path_intervals(spans: dict[str, Interval], key: str) -> PathIntervals:
    spare = spans[f"{key}.s_per_byte"]
    return PathIntervals(
        move_s=_floored(spans[f"{key}.move_s"]),
        ttft_change_s=spans[f"{key}.ttft_change_s"],
        gpu_seconds_freed_sync=spans[f"{key}.gpu_seconds_freed_sync"],
        write_s=_floored(spans[f"{key}.write_s"]) if f"{key}.write_s" in spans else None,
        path_bytes_per_s=_floored(spans[f"{key}.path_bytes_per_s"]),
        break_even_low_bytes_per_s=1.0 / spare.high if spare.high > 0 else None,
        break_even_high_bytes_per_s=1.0 / spare.low if spare.low > 0 else None,
        way_stall_s={way: _floored(spans[f"{key}.{way}.stall_s"]) for way in WAYS},
        way_ttft_change_s={way: spans[f"{key}.{way}.ttft_change_s"] for way in WAYS},
    )


def _floored(span: Interval) -> Interval:
    """A time or a rate: none is below zero."""
    return Interval(max(span.low, 0.0), span.value, span.high)
