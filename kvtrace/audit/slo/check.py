"""The SLO of a comparison: no worse than today, by the replays of the same requests.

TTFT: mean, p90 and p99 over all requests, and p90 and p99 of each prompt bucket that has enough
requests; TPOT: mean, p90 and p99. Each within its tolerance. An option that cannot carry the load
keeps no SLO.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.audit.thresholds import BEYOND_QUANTILE, CLEAR_MISS, TAIL_TOLERANCE, TPOT_TOLERANCE
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import percentiles
from kvtrace.schema.arrays import BoolArray, FloatArray, RequestTrace
from kvtrace.units import format_seconds

_QUANTILES: Final = (("p90", 0.9), ("p99", 0.99))


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an option beside that of its reference, in seconds."""

    name: str
    """`TTFT p90`, `TPOT mean`, …"""
    mine_s: float
    reference_s: float
    allowed_s: float
    """Tolerance: by so much it may be longer."""
    bucket: int | None = None
    """Lower bound of the prompt bucket; null: over all requests."""
    is_judged: bool = True
    """False where too few requests lie beyond the quantile to tell."""

    @property
    def excess_s(self) -> float:
        """Longer than the reference by; below zero: shorter."""
        return self.mine_s - self.reference_s

    @property
    def is_kept(self) -> bool:
        """Within the tolerance."""
        return self.excess_s <= self.allowed_s * (1 + 1e-9)

    @property
    def times(self) -> float:
        """Mine over the reference's."""
        return self.mine_s / self.reference_s if self.reference_s > 0 else float("inf")

    @property
    def where(self) -> str:
        """`TTFT p99 of prompts of 1,024 to 2,048 tokens`."""
        if self.bucket is None:
            return self.name
        return f"{self.name} of prompts of {self.bucket:,} to {2 * max(self.bucket, 1):,} tokens"

    @property
    def is_missed_narrowly(self) -> bool:
        """Beyond the tolerance, which is a choice, and not by so much that no error explains it."""
        return not self.is_kept and self.times < CLEAR_MISS.value

    def __str__(self) -> str:
        """The two numbers; a narrow miss says by how much, and what is allowed."""
        mine, theirs = format_seconds(self.mine_s), format_seconds(self.reference_s)
        shown = f"{self.where} {mine} against {theirs}"
        if not self.is_missed_narrowly or not self.reference_s:
            return shown
        allowed = 100 * self.allowed_s / self.reference_s
        return (
            f"{shown}, {100 * (self.times - 1):.1f} % longer; {allowed:.1f} % count as equal, "
            "which kvtrace chose"
        )


@dataclass(frozen=True, slots=True)
class SloCheck:
    """One option against the reference."""

    title: str
    reference_title: str
    is_overloaded: bool
    offered_load: float | None
    figures: tuple[Figure, ...]

    @property
    def is_kept(self) -> bool:
        """It carries the load, and every judged figure is within its tolerance."""
        judged = [figure for figure in self.figures if figure.is_judged]
        return not self.is_overloaded and bool(judged) and all(f.is_kept for f in judged)

    @property
    def is_clearly_missed(self) -> bool:
        """So far beyond that no model error keeps it."""
        worst = self.worst
        return self.is_overloaded or (worst is not None and worst.times >= CLEAR_MISS.value)

    @property
    def worst(self) -> Figure | None:
        """Of the judged figures that are too long, the one by the largest factor; null if none."""
        late = [f for f in self.figures if f.is_judged and not f.is_kept]
        return max(late, key=lambda f: (f.times, f.where), default=None)

    @property
    def unjudged(self) -> Figure | None:
        """The figure that got longest and rests on too few requests to be judged."""
        late = [f for f in self.figures if not f.is_judged and not f.is_kept]
        return max(late, key=lambda f: (f.times, f.where), default=None)

    def __str__(self) -> str:
        """The numbers that say it best."""
        if self.is_overloaded:
            return f"{self.title} cannot carry the load: {load_text(self.offered_load)}"
        judged = [f for f in self.figures if f.is_judged and f.name.startswith("TTFT")]
        shown = self.worst or max(judged, key=lambda f: (f.times, f.where), default=None)
        if shown is None:
            return f"{self.title}: TTFT unknown"
        return f"{self.title}: {shown} with {self.reference_title}"


def load_text(offered_load: float | None) -> str:
    """`offered load 1.12`; a queue may grow below 1, too, where the work comes unevenly."""
    grows = "its queue grows to the end of the window"
    return grows if offered_load is None else f"{grows} (offered load {offered_load:.2f})"


def check_slo(
    trace: RequestTrace, result: ReplayResult, reference: ReplayResult, *, slack_s: float = 0.0
) -> SloCheck:
    """`result` against `reference`, both replays of `trace`.

    `slack_s`: uncertainty of the lookup, see `lookup_slack_s`.
    """
    return SloCheck(
        title=result.scenario.title,
        reference_title=reference.scenario.title,
        is_overloaded=result.is_overloaded,
        offered_load=result.offered_load,
        figures=tuple(_figures(trace, result, reference, slack_s)),
    )


def lookup_slack_s(deployment: Deployment, option_id: str) -> float:
    """High less value of the lookup that each request of the option pays, in seconds."""
    hardware = deployment.hardware
    if option_id.startswith("pool_"):
        return _above(hardware.pool_lookup_s)
    return _above(hardware.dram_lookup_s) if option_id.startswith("dram_") else 0.0


def _above(constant: Constant) -> float:
    return 0.0 if constant.high is None else constant.high - constant.value


def _figures(
    trace: RequestTrace, result: ReplayResult, reference: ReplayResult, slack_s: float
) -> Iterator[Figure]:
    mine, theirs = result.timeline, reference.timeline
    yield from _overall("TTFT", mine.ttft_s, theirs.ttft_s, TAIL_TOLERANCE.value, slack_s)
    yield from _overall("TPOT", mine.tpot_s, theirs.tpot_s, TPOT_TOLERANCE.value, 0.0)
    buckets = prompt_buckets(trace)
    for bucket in np.unique(buckets).tolist():
        inside = np.asarray(buckets == bucket)
        yield from _of_bucket(bucket, inside, mine.ttft_s, theirs.ttft_s, slack_s)


def _overall(
    name: str, mine: FloatArray, theirs: FloatArray, share: float, slack_s: float
) -> Iterator[Figure]:
    own, other = percentiles(mine), percentiles(theirs)
    for at, label in ((0, "mean"), (2, "p90"), (3, "p99")):
        a, b = own[at], other[at]
        if a is not None and b is not None:
            yield Figure(f"{name} {label}", a, b, max(share * b, slack_s))


def _of_bucket(
    bucket: int, inside: BoolArray, mine: FloatArray, theirs: FloatArray, slack_s: float
) -> Iterator[Figure]:
    requests = int(inside.sum())
    for label, quantile in _QUANTILES:
        a, b = (
            float(np.quantile(mine[inside], quantile)),
            float(np.quantile(theirs[inside], quantile)),
        )
        yield Figure(
            f"TTFT {label}",
            a,
            b,
            max(TAIL_TOLERANCE.value * b, slack_s),
            bucket=bucket,
            is_judged=requests * (1 - quantile) >= BEYOND_QUANTILE.value - 1e-6,
        )


def prompt_buckets(trace: RequestTrace) -> np.ndarray:
    """(requests,) lower bound of each prompt's power-of-two bucket."""
    sizes = trace.prompt_tokens
    _, exponents = np.frexp(sizes.astype(np.float64))
    lower = np.left_shift(1, np.maximum(exponents - 1, 0).astype(np.int64))
    return np.asarray(np.where(sizes > 0, lower, 0), dtype=np.int64)
