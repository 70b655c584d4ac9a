"""One scrape of one target as a row of metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.prometheus.gains import Gain
from kvtrace.ingest.prometheus.series import Series
from kvtrace.ingest.prometheus.uses import Use
from kvtrace.schema.metrics import METRICS

QUANTILES: Final = (50, 90, 99)
_NOT_ADDED: Final = frozenset({"ratio", "bytes_per_s"})
"""Units of gauges of which several cannot stand for one."""


@dataclass(slots=True)
class _Pool:
    """What the series of one metric add up to."""

    gains: dict[str, list[Gain]] = field(default_factory=dict)
    """By part: value, numerator, denominator."""
    gauges: list[float | None] = field(default_factory=list)
    buckets: dict[float, list[Gain]] = field(default_factory=dict)
    use: Use | None = None
    base: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """How long ago each earlier scrape was."""

    times_ns: Sequence[int | None]
    now_ns: int | None

    def length_ns(self, since: int) -> int | None:
        """Nanoseconds since that scrape; None if a time is unknown or they are out of order."""
        before = self.times_ns[since]
        if before is None or self.now_ns is None or self.now_ns <= before:
            return None
        return self.now_ns - before


def observe(
    values: Sequence[tuple[Series, float]],
    gains: Mapping[Series, Gain],
    window: Window,
    help_units: Mapping[str, str],
) -> list[Metric]:
    """The metrics of one target in one scrape, by name.

    `values` are its series in file order; `help_units` what the HELP text of a name says that it
    counts.
    """
    marks = {use.mark for series, _ in values for use in series.uses if use.mark is not None}
    pools: dict[str, _Pool] = {}
    for series, value in values:
        for use in series.uses:
            if (use.needs is not None and use.needs not in marks) or use.unless in marks:
                continue
            pool = pools.setdefault(use.metric, _Pool())
            if pool.use is None:
                pool.use, pool.base = use, series.base
            _pour(pool, series, use, value, gains)
    found: list[Metric] = []
    for name in sorted(pools):
        found += _metrics(name, pools[name], window, help_units)
    return found


def _pour(
    pool: _Pool, series: Series, use: Use, value: float, gains: Mapping[Series, Gain]
) -> None:
    gain = gains.get(series)
    if gain is None:
        pool.gauges.append(None if value == use.null_at else value * use.scale)
    elif series.bound is not None:
        pool.buckets.setdefault(series.bound * use.scale, []).append(gain)
    else:
        scaled = Gain(gain.amount * use.scale, gain.since)
        pool.gains.setdefault(use.part, []).append(scaled)


def _metrics(name: str, pool: _Pool, window: Window, help_units: Mapping[str, str]) -> list[Metric]:
    use = pool.use
    if use is None:
        return []
    if pool.buckets:
        return _upper_bounds(name, pool.buckets, window)
    hit_unit = help_units.get(pool.base) if use.hit_unit == "help" else use.hit_unit
    if pool.gauges:
        metric = Metric(
            metric=name,
            value=_combined(name, pool.gauges),
            unit=METRICS[name].unit,
            hit_unit=hit_unit,
            window=use.window,
        )
        return [metric]
    if "value" in pool.gains:
        amount, since = _summed(pool.gains["value"])
        return [_counted(name, amount, since, window)]
    quotient = _quotient(name, pool, window, hit_unit)
    return [] if quotient is None else [quotient]


def _combined(name: str, gauges: list[float | None]) -> float | None:
    """The gauges of several series as one; None where they cannot be one."""
    known = [value for value in gauges if value is not None]
    if len(known) < len(gauges) or not known:
        return None
    if METRICS[name].unit in _NOT_ADDED:
        return known[0] if all(value == known[0] for value in known) else None
    return math.fsum(known)


_MIXED: Final = -1
"""Series that began at different scrapes: their sum has no window."""


def _summed(gains: Sequence[Gain]) -> tuple[float | None, int | None]:
    """(sum, since); the sum is None where the gains are not of one window."""
    since = {gain.since for gain in gains}
    if len(since) > 1:
        return None, _MIXED
    return math.fsum(gain.amount for gain in gains), since.pop()


def _counted(
    name: str,
    value: float | None,
    since: int | None,
    window: Window,
    *,
    hit_unit: str | None = None,
    parts: tuple[float | None, float | None] = (None, None),
) -> Metric:
    """A metric of a counter, over its window."""
    is_interval = since is not None
    return Metric(
        metric=name,
        value=value,
        unit=METRICS[name].unit,
        hit_unit=hit_unit,
        window="interval" if is_interval else "cumulative",
        window_ns=window.length_ns(since) if since is not None and since != _MIXED else None,
        numerator=parts[0],
        denominator=parts[1],
    )


def _quotient(name: str, pool: _Pool, window: Window, hit_unit: str | None) -> Metric | None:
    """A hit ratio or a mean; no value where nothing was counted, or parts of two windows."""
    if "numerator" not in pool.gains or "denominator" not in pool.gains:
        return None
    top, since = _summed(pool.gains["numerator"])
    bottom, other = _summed(pool.gains["denominator"])
    if top is None or bottom is None or since != other:
        return _counted(name, None, _MIXED, window, hit_unit=hit_unit)
    is_ratio = METRICS[name].unit == "ratio"
    if bottom <= 0 and not is_ratio:
        return None
    value = top / bottom if bottom > 0 else None
    if is_ratio and value is not None and not 0 <= value <= 1:
        value = None
    return _counted(name, value, since, window, hit_unit=hit_unit, parts=(top, bottom))


def _upper_bounds(
    stem: str, buckets: Mapping[float, Sequence[Gain]], window: Window
) -> list[Metric]:
    """P50, P90, P99 are at most these bounds; none where the last bucket is open or torn."""
    bounds = sorted(buckets)
    sums = [_summed(buckets[bound]) for bound in bounds]
    since = {start for _, start in sums}
    counts = [count for count, _ in sums if count is not None]
    if len(since) > 1 or len(counts) < len(bounds) or not math.isinf(bounds[-1]):
        return []
    if counts[-1] <= 0 or any(later < earlier for earlier, later in pairwise(counts)):
        return []
    found: list[Metric] = []
    for quantile in QUANTILES:
        bound = next(
            bound
            for bound, count in zip(bounds, counts, strict=True)
            if 100 * count >= quantile * counts[-1]
        )
        value = None if math.isinf(bound) else bound
        found.append(_counted(f"{stem}_p{quantile}_le_s", value, next(iter(since)), window))
    return found
