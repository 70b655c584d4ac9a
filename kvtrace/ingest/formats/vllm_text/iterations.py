"""`Iteration(N)` lines: what each engine step computed, and how long it took.

Lines read from the sources of vLLM 0.14.0 to 0.33.0 (--enable-logging-iteration-details). A busy
engine prints fifty a second, so behind the first ones all of an engine in one second of the log
become one sample: means with their sums, which is what a cost model is fitted to.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import LineTime, Metric, Record
from kvtrace.ingest.formats.vllm_text.samples import SampleBook
from kvtrace.ingest.formats.vllm_text.stats import unlabelled
from kvtrace.units import NS_PER_S

ITERATION_START: Final = "Iteration("
MAX_SINGLE: Final = 16_384
"""Iterations of a log that become samples of their own."""
_COUNT: Final = r"(\d{1,18})"
_NUMBER: Final = r"(\d{1,18}(?:\.\d{1,18})?)"
_ITERATION = re.compile(
    rf"Iteration\(\d{{1,18}}\): {_COUNT} context requests, {_COUNT} context tokens,"
    rf" {_COUNT} generation requests, {_COUNT} generation tokens,"
    rf" iteration elapsed time: {_NUMBER} ms( \(dummy\))?"
    rf"(?:, [A-Z]\w{{0,20}} KV cache usage: {_NUMBER}%)?(?:, [\w /:,.()%-]{{1,400}})?",
    re.ASCII,
)
_USAGE: Final = "kv_usage_ratio"
_METRICS: Final = (
    # metric, unit; in the order of the line
    ("iteration_context_requests", "requests"),
    ("iteration_context_tokens", "tokens"),
    ("iteration_generation_requests", "requests"),
    ("iteration_generation_tokens", "tokens"),
    ("iteration_elapsed_s", "s"),
    (_USAGE, "ratio"),
)
_MAX_ENGINES: Final = 1_024


class Iteration(msgspec.Struct, frozen=True, gc=False):
    """One whole line."""

    engine: str | None
    values: list[float]
    """In the order of `_METRICS`; without the last one where KV usage is not printed."""
    is_dummy: bool

    @property
    def features(self) -> tuple[str, ...]:
        """Keys of `version.FEATURES` that the line shows."""
        return ("iteration", "iteration_usage") if len(self.values) > 5 else ("iteration",)


def parse_iteration(message: str) -> Iteration | None:
    """The values of the line; None if it is not whole."""
    engine, body = unlabelled(message)
    match = _ITERATION.fullmatch(body) if len(body) < 2_000 else None
    if match is None:
        return None
    *counts, elapsed_ms, dummy, usage = match.groups()
    values = [*map(float, counts), float(Decimal(elapsed_ms).scaleb(-3))]
    if usage is not None:
        values.append(float(Decimal(usage).scaleb(-2)))
    return Iteration(engine, values, dummy is not None)


class _Pool(msgspec.Struct, gc=False):
    """Iterations of one engine in one second of the log."""

    offset: int
    line: int
    time: LineTime
    sums: list[float]
    counts: list[int]

    def add(self, values: list[float]) -> None:
        for place, value in enumerate(values):
            self.sums[place] += value
            self.counts[place] += 1


class IterationPool:
    """Gives iterations as samples: one by one at first, then by engine and second."""

    def __init__(self, samples: SampleBook) -> None:
        self._samples = samples
        self._given = 0
        self._pools: dict[str | None, _Pool] = {}
        self.has_pooled = False

    def take(
        self, record: Record, time: LineTime, engine: str | None, iteration: Iteration
    ) -> None:
        """Take in the iteration of an engine."""
        if self._given < MAX_SINGLE:
            self._given += 1
            self._samples.give(record, time, engine, _single(iteration.values))
            return
        pool = self._pools.get(engine)
        if pool is None or pool.time != time:
            if pool is not None:
                self._give(engine, self._pools.pop(engine))
            elif len(self._pools) >= _MAX_ENGINES:
                self.flush()
            pool = _Pool(record.offset, record.line, time, [0.0] * 6, [0] * 6)
            self._pools[engine] = pool
        pool.add(iteration.values)

    def flush(self) -> None:
        """Give what is pooled so far."""
        for engine, pool in self._pools.items():
            self._give(engine, pool)
        self._pools.clear()

    def _give(self, engine: str | None, pool: _Pool) -> None:
        self.has_pooled = True
        metrics = [
            Metric(
                metric=name,
                value=total / count,
                unit=unit,
                window="interval",
                window_ns=NS_PER_S,
                numerator=total,
                denominator=float(count),
            )
            for (name, unit), total, count in zip(_METRICS, pool.sums, pool.counts, strict=True)
            if count
        ]
        self._samples.give(Record(pool.offset, pool.line, b""), pool.time, engine, metrics)


def _single(values: list[float]) -> list[Metric]:
    return [
        Metric(
            metric=name,
            value=value,
            unit=unit,
            window="instant" if name is _USAGE else "last_batch",
        )
        for (name, unit), value in zip(_METRICS, values, strict=False)
    ]
