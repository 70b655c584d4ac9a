"""What the engines counted, against the requests of the same time.

An engine's counter and a request log see the same traffic through different windows: a request that
is in flight at the first or the last observation is on one side only, and a counter moves when the
engine admits or ends a request, not when it arrives. So the two must agree within a tolerance: a
share of the total, or what two of the largest windows gained, whichever is more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

import polars as pl

from kvtrace.schema.manifest import SourceEntry
from kvtrace.store.dataset import Dataset
from kvtrace.units import NS_PER_S
from kvtrace.verify.check import Check, compared, not_compared
from kvtrace.verify.rows import Request

DEFAULT_TOLERANCE: Final = 0.05
"""Share of a total by which an engine's counter may stand off."""
EDGE_WINDOWS: Final = 2
"""Windows that may hold traffic of one side alone: the first and the last."""
_COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "prompt_tokens": ("prompt_tokens", "tokens"),
    "output_tokens": ("output_tokens", "tokens"),
    "cached_tokens": ("cached_tokens", "tokens"),
    "finished_requests": ("requests", "requests"),
}
"""Counters by metric: the column of requests that counts the same, and the unit."""
_RATES: Final[Mapping[str, str]] = {
    "prompt_tokens_per_s": "prompt_tokens",
    "generation_tokens_per_s": "output_tokens",
}
"""Rates whose sum over time is a count; the counter itself comes first where both are there."""
_GAINS: Final = ("interval", "last_batch")


@dataclass(frozen=True, slots=True)
class Counted:
    """What an engine counted of one thing between two instants."""

    total: float
    largest: float
    """Of one window."""
    first_ns: int
    last_ns: int
    is_utc: bool
    how: str


def check_counters(
    dataset: Dataset, requests: Sequence[Request], tolerance: float
) -> Iterator[Check]:
    """Every source with samples: totals of tokens and requests, and hit ratios."""
    samples = dataset.table("samples")
    sources = [one for one in dataset.manifest.sources if one.samples]
    if not sources:
        yield not_compared("engine/counters", "no log holds an engine's counters")
    for source in sources:
        own = samples.filter(pl.col("source_id") == source.source_id)
        yield from _of_source(source, own, requests, tolerance)


def _of_source(
    source: SourceEntry, samples: pl.DataFrame, requests: Sequence[Request], tolerance: float
) -> Iterator[Check]:
    prefix = f"engine/{source.format}_{source.source_id}"
    if not requests:
        yield not_compared(f"{prefix}/counters", "the logs hold no request of their own")
        return
    if source.role == "beside":
        yield not_compared(
            f"{prefix}/counters",
            "nothing says that these counters are of the same requests (no request id joins them)",
        )
        return
    found = _counters(samples)
    for metric, (column, unit) in _COUNTED.items():
        counted = found.get(metric)
        id = f"{prefix}/{metric}"
        if counted is None:
            yield not_compared(id, f"the engine's log does not count {metric}", unit=unit)
        else:
            yield _compare(id, counted, requests, column, unit, tolerance)
    yield _hit_ratio(prefix, samples, requests, tolerance)


def _counters(samples: pl.DataFrame) -> dict[str, Counted]:
    found: dict[str, Counted] = {}
    for metric in _COUNTED:
        gained = _gained(samples, metric)
        if gained is not None:
            found[metric] = gained
    for rate, metric in _RATES.items():
        summed = _summed(samples, rate)
        if summed is not None:
            found.setdefault(metric, summed)
    return found


def _rows(samples: pl.DataFrame, metric: str) -> pl.DataFrame:
    return samples.filter(
        (pl.col("metric") == metric)
        & pl.col("window").is_in(_GAINS)
        & pl.col("value").is_not_null()
        & pl.col("observed_at_ns").is_not_null()
    ).sort("engine", "observed_at_ns", "sample_key", nulls_last=True)


def _gained(samples: pl.DataFrame, metric: str) -> Counted | None:
    """A counter that is stored as what it gained in each window."""
    rows = _rows(samples, metric)
    if rows.is_empty():
        return None
    windows = [window or 0 for window in rows["window_ns"]]
    return _counted(rows, rows["value"].to_list(), windows, "sum of what each window gained")


def _summed(samples: pl.DataFrame, rate: str) -> Counted | None:
    """A rate times its window; where that is not printed, times the usual step between lines."""
    rows = _rows(samples, rate)
    times: dict[str | None, list[int]] = defaultdict(list)
    for engine, time in rows.select("engine", "observed_at_ns").iter_rows():
        times[engine].append(time)
    steps = [b - a for own in times.values() for a, b in pairwise(own) if b > a]
    known = rows["window_ns"].null_count() == 0
    if rows.is_empty() or not (steps or known):
        return None
    usual = 0 if known else int(median(steps))
    windows = [usual if window is None else window for window in rows["window_ns"]]
    gains = [
        value * window / NS_PER_S for value, window in zip(rows["value"], windows, strict=True)
    ]
    how = "each rate × its window"
    if not known:
        how = f"each rate × {usual / NS_PER_S:g} s, the usual time between two lines"
    return _counted(rows, gains, windows, how)


def _counted(
    rows: pl.DataFrame, gains: Sequence[float], windows: Sequence[int], how: str
) -> Counted:
    times = rows["observed_at_ns"].to_list()
    return Counted(
        total=math.fsum(gains),
        largest=max(gains),
        first_ns=min(time - window for time, window in zip(times, windows, strict=True)),
        last_ns=max(times),
        is_utc=rows["clock"].unique().to_list() == ["utc"],
        how=how,
    )


def _during(counted: Counted, requests: Sequence[Request]) -> list[Request]:
    """Requests that reached an engine while it was observed."""
    return [
        one
        for one in requests
        if one.status != "gateway_cache_hit"
        and one.arrived_at_ns is not None
        and counted.first_ns <= one.arrived_at_ns <= counted.last_ns
    ]


def _compare(
    id: str,
    counted: Counted,
    requests: Sequence[Request],
    column: str,
    unit: str,
    tolerance: float,
) -> Check:
    if not counted.is_utc or not any(one.is_utc for one in requests):
        return not_compared(id, "the clocks of engine and requests cannot be compared", unit=unit)
    during = _during(counted, requests)
    if not during:
        return not_compared(id, "no request arrived while the engine was observed", unit=unit)
    if column == "requests":
        value = len(during)
    else:
        values = [getattr(one, column) for one in during]
        if any(item is None for item in values):
            return not_compared(id, f"not every request knows its {column}", unit=unit)
        value = sum(values)
    allowed = max(tolerance * counted.total, EDGE_WINDOWS * counted.largest)
    why = (
        f"{counted.how}; {len(during):,} requests arrived meanwhile; tolerance: the larger of "
        f"{tolerance:.1%} and {EDGE_WINDOWS} windows at the edges"
    )
    return compared(
        id, round(counted.total, 3), value, unit=unit, tolerance=round(allowed, 3), why=why
    )


def _hit_ratio(
    prefix: str, samples: pl.DataFrame, requests: Sequence[Request], tolerance: float
) -> Check:
    """Hits over look-ups in tokens, against cached over prompt tokens of requests."""
    id = f"{prefix}/hit_ratio_tokens"
    known = [
        (one.cached_tokens, one.prompt_tokens)
        for one in requests
        if one.status == "ok" and one.cached_tokens is not None and one.prompt_tokens
    ]
    if not known:
        return not_compared(id, "no request counts its cached tokens", unit="ratio")
    rows = samples.filter(
        pl.col("metric").is_in(["prompt_hit_ratio", "prefix_hit_ratio"])
        & pl.col("window").is_in(_GAINS)
        & (pl.col("hit_unit") == "tokens")
        & pl.col("numerator").is_not_null()
        & pl.col("denominator").is_not_null()
    )
    whole = rows.filter(pl.col("metric") == "prompt_hit_ratio")
    rows = rows if whole.is_empty() else whole
    looked_up = math.fsum(rows["denominator"])
    if not looked_up:
        why = "the engine's log prints a ratio over a sliding window, or none, but not its counts"
        return not_compared(id, why, unit="ratio")
    return compared(
        id,
        math.fsum(rows["numerator"]) / looked_up,
        sum(cached for cached, _ in known) / sum(prompt for _, prompt in known),
        unit="ratio",
        tolerance=tolerance,
        why=f"hits over look-ups of the engine; cached over prompt tokens of {len(known):,} "
        f"requests; tolerance: {tolerance:.1%} of all tokens, for requests at the edges",
    )
