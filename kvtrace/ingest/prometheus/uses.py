"""What one family of upstream metrics becomes: rows of a table, in kvtrace's vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Suffix = Literal["", "sum", "count", "bucket"]
Part = Literal["value", "numerator", "denominator", "bucket"]


@dataclass(frozen=True, slots=True)
class Use:
    """One series' share in one metric of the samples table."""

    metric: str
    part: Part = "value"
    suffix: Suffix = ""
    """Which series of a histogram; empty for counters and gauges."""
    scale: float = 1.0
    """Upstream value × this is in the metric's unit."""
    hit_unit: str | None = None
    """tokens, blocks, objects; `help`: as the HELP text says."""
    window: str | None = "instant"
    """Of a gauge; counters have `interval` or `cumulative`."""
    label: str | None = None
    """Only series whose label has one of `values` (a last `*` stands for any ending)."""
    values: tuple[str, ...] = ()
    null_at: float | None = None
    """A value of the gauge that means that there is none."""
    mark: str | None = None
    """Said of the observation when such a series is in it."""
    needs: str | None = None
    """Counts only where a series with this mark is in the same observation."""
    unless: str | None = None
    """Counts only where no series with this mark is."""

    def wants(self, labels: dict[str, str]) -> bool:
        """Whether the series with these labels counts here."""
        if self.label is None:
            return True
        value = labels.get(self.label, "")
        return any(
            value.startswith(want[:-1]) if want.endswith("*") else value == want
            for want in self.values
        )


@dataclass(frozen=True, slots=True)
class Family:
    """One upstream metric, without `_total` and the suffixes of histograms."""

    kind: Kind
    uses: tuple[Use, ...]


def counter(*metrics: str, scale: float = 1.0) -> Family:
    """What the counter gained is the metric."""
    return Family("counter", tuple(Use(metric, scale=scale) for metric in metrics))


def gauge(metric: str, *, scale: float = 1.0, window: str | None = "instant") -> Family:
    """The value is the metric."""
    return Family("gauge", (Use(metric, scale=scale, window=window),))


def hit_gauge(metric: str, hit_unit: str | None, window: str) -> Family:
    """A hit ratio that is printed as such; below zero it is switched off."""
    return Family("gauge", (Use(metric, hit_unit=hit_unit, window=window, null_at=-1.0),))


def counters(*uses: Use) -> Family:
    """A counter with several uses, or with uses by label."""
    return Family("counter", uses)


def mean(metric: str, *, scale: float = 1.0, quantiles: str | None = None) -> Family:
    """A histogram whose mean is the metric; `quantiles`: with upper bounds of P50, P90, P99."""
    uses = [
        Use(metric, "numerator", "sum", scale),
        Use(metric, "denominator", "count"),
    ]
    if quantiles is not None:
        uses.append(Use(quantiles, "bucket", "bucket", scale))
    return Family("histogram", tuple(uses))


def summed(metric: str, *, scale: float = 1.0) -> Family:
    """A histogram whose sum is the metric."""
    return Family("histogram", (Use(metric, "value", "sum", scale),))


def both(*families: Family) -> Family:
    """All uses of several rows about one upstream metric."""
    return Family(families[0].kind, tuple(use for family in families for use in family.uses))


def share(
    metric: str, part: Part, hit_unit: str | None, *, suffix: Suffix = "", needs: str | None = None
) -> Use:
    """Numerator or denominator of a hit ratio."""
    return Use(metric, part, suffix, hit_unit=hit_unit, needs=needs)


def by_label(use: Use, label: str, *values: str) -> Use:
    """The same use for series with one of these label values."""
    return replace(use, label=label, values=values)


@dataclass(frozen=True, slots=True)
class Program:
    """One exporter: what its names start with, and what they mean."""

    slug: str
    """As in `engine` of a source."""
    prefixes: tuple[str, ...]
    """`:` and `.` written as `_`."""
    families: dict[str, Family]
    """By name without prefix, `_total`, `_bucket`, `_sum`, `_count`."""
    is_machine: bool = False
    """Speaks of hosts and devices, not of an engine."""
