"""What engines counted against the rows that are there, and the edge of slow-only logging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kvtrace.units import NS_PER_MS, NS_PER_S

_ABSOLUTE: Final = ("utc", "naive")
_ENOUGH_COUNTED: Final = 100
"""Requests, or as many mean prompts, that the engine must have counted."""
_COVERED: Final = 0.5
"""Share of the log's time that the counters must cover."""
_ENOUGH_TIMED: Final = 100
_EDGE: Final = 0.1
"""Width of the bins above the edge, as a share of it."""
_ABOVE: Final = 0.01
"""How far above a round threshold the fastest logged request may lie, as a share of it."""
_SPREAD: Final = 1.5
"""The 90th percentile over the edge: a workload of equal requests has an edge of its own."""
_AT_EDGE: Final = 10
_ROUND_MS: Final = (
    *range(100, 1000, 50),
    *range(1000, 10_000, 500),
    *range(10_000, 60_001, 5000),
    90_000,
    120_000,
    300_000,
)


@dataclass(frozen=True, slots=True)
class Counted:
    """The same time by the engine's counters and by the rows."""

    logged: float
    counted: float
    unit: str

    @property
    def share(self) -> float:
        """What the log holds, 0..1 and more."""
        return self.logged / self.counted


def counted_by_engine(requests: pl.DataFrame, samples: pl.DataFrame) -> Counted | None:
    """The counter that speaks most for the log being whole; None without one.

    Counters: `finished_requests` and `prompt_tokens` of interval windows, per source, summed over
    its engines. A source that counts one engine of many counts less than the rows, and so keeps
    quiet; the rows are then not judged.
    """
    placed = requests.filter(
        pl.col("arrived_at_ns").is_not_null() & pl.col("clock").is_in(_ABSOLUTE)
    )
    if len(placed) < 2:
        return None
    first, last = _ns(placed["arrived_at_ns"].min()), _ns(placed["arrived_at_ns"].max())
    started = pl.col("observed_at_ns") - pl.col("window_ns")
    gained = samples.filter(
        pl.col("metric").is_in(["finished_requests", "prompt_tokens"])
        & (pl.col("window") == "interval")
        & pl.col("value").is_finite()
        & (pl.col("value") >= 0)
        & (pl.col("window_ns") > 0)
        & pl.col("clock").is_in(_ABSOLUTE)
        & (started >= first)
        & (pl.col("observed_at_ns") <= last)
    )
    found = []
    for _, part in gained.group_by("source_id", "metric", maintain_order=True):
        one = _compared(placed, _without_parts(part), last - first)
        if one is not None:
            found.append(one)
    return max(found, key=lambda one: one.share, default=None)


def _ns(value: object) -> int:
    return value if isinstance(value, int) else 0


def _without_parts(part: pl.DataFrame) -> pl.DataFrame:
    """Only the sums over engines where a source prints them beside the engines themselves."""
    is_sum = pl.col("engine").str.contains("(?i)aggregated").fill_null(False)
    sums = part.filter(is_sum)
    return part if sums.is_empty() else sums


def _compared(placed: pl.DataFrame, part: pl.DataFrame, span_ns: int) -> Counted | None:
    """Rows and counter as rates over the time that the counter covers."""
    by_engine = part.group_by("engine").agg(
        pl.col("value").sum(),
        pl.col("window_ns").sum(),
        (pl.col("observed_at_ns") - pl.col("window_ns")).min().alias("start"),
        pl.col("observed_at_ns").max().alias("end"),
    )
    covered = int(by_engine["window_ns"].max() or 0)  # type: ignore[arg-type]
    if covered < _COVERED * span_ns:
        return None
    start, end = _ns(by_engine["start"].min()), _ns(by_engine["end"].max())
    rows = placed.filter(pl.col("arrived_at_ns").is_between(start, end))
    counted = sum(
        value * (end - start) / window
        for value, window in by_engine.sort("start", "value").select("value", "window_ns").rows()
        if window
    )
    if part["metric"][0] == "finished_requests":
        if counted < _ENOUGH_COUNTED:
            return None
        return Counted(len(rows), counted, "requests")
    known = rows["prompt_tokens"].drop_nulls()
    mean = float(known.mean() or 0) if len(known) else 0.0  # type: ignore[arg-type]
    if len(known) < len(rows) or not mean or counted / mean < _ENOUGH_COUNTED:
        return None
    return Counted(float(known.sum()), counted, "prompt tokens")


def slow_edge_ms(requests: pl.DataFrame) -> int | None:
    """The threshold, in ms, below which no request is logged; None where nothing looks like one.

    The fastest request lies at most 1 % above a round number, the requests just above it are not
    rarer than those of the next bin, and most requests take clearly longer. A distribution that was
    not cut thins out towards its fastest request.
    """
    times = requests["e2e_ns"].drop_nulls().to_numpy()
    if len(times) < _ENOUGH_TIMED:
        return None
    fastest = int(times.min())
    step_ns = int(np.gcd.reduce(times))
    thresholds = [ms for ms in _ROUND_MS if ms * NS_PER_MS <= fastest]
    if not thresholds or step_ns >= NS_PER_S // 10:
        return None
    edge = thresholds[-1] * NS_PER_MS
    if fastest > (1 + _ABOVE) * edge or float(np.quantile(times, 0.9)) < _SPREAD * edge:
        return None
    at_edge = int(np.sum(times < (1 + _EDGE) * edge))
    next_bin = int(np.sum(times < (1 + 2 * _EDGE) * edge)) - at_edge
    return thresholds[-1] if at_edge >= _AT_EDGE and at_edge >= 0.5 * next_bin else None
