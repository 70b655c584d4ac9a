"""Batch lines as samples: one by one at first, then sums and means over slices of time.

A busy engine prints ten a second, for weeks. Behind the first ones, all lines of one kind and
engine in a slice become one sample; slices grow with the log.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kvtrace.ingest.clocks import NO_TIME
from kvtrace.ingest.contract import Emit, LineTime, Metric, Record, SampleRow
from kvtrace.ingest.formats.sglang_text.batches import (
    Batch,
    BatchKind,
    Gauge,
    Shape,
    prompt_hit,
    since_start,
    to_metrics,
)
from kvtrace.units import NS_PER_S

MAX_SINGLE: Final = 16_384
"""Batch lines of a log that become samples of their own, and slices before they grow longer."""
_SLICES_NS: Final = (10 * NS_PER_S, 60 * NS_PER_S, 600 * NS_PER_S)
_UNDATED_LINES: Final = 64
"""Lines in a slice where lines have no time."""
_SUMMED: Final = "last_batch"
"""Window of what is added up; everything else is a mean."""
_MAX_ENGINES: Final = 1_024

_Key = tuple[str | None, BatchKind]
"""Engine and kind of the lines in a slice."""


class _Slice(msgspec.Struct, gc=False):
    shape: Shape
    number: int
    width_ns: int
    offset: int
    line: int
    time: LineTime
    sums: list[float]
    """In the order of the shape's gauges."""
    counts: list[int]
    lines: int = 0
    rate: Metric | None = None


class BatchPool:
    """Takes batch lines and gives samples."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._given = 0
        self._slices: dict[_Key, _Slice] = {}
        self._ends: dict[_Key, int] = {}
        self._width_ns = _SLICES_NS[0]
        self.has_pooled = False

    def take(self, batch: Batch, record: Record, time: LineTime, engine: str | None) -> None:
        """Take in one line of an engine."""
        if self._given < MAX_SINGLE:
            self._given += 1
            self._give(record.offset, record.line, time, engine, to_metrics(batch))
            return
        shape = batch.shape
        key = (engine, shape.kind)
        pooled = self._slices.get(key)
        width_ns = self._width_ns
        number = _number(time, pooled, width_ns)
        if pooled is None or pooled.number != number or pooled.shape is not shape:
            if pooled is not None:
                self._close(key, self._slices.pop(key))
            elif len(self._slices) >= _MAX_ENGINES:
                self.flush()
            size = len(shape.gauges)
            pooled = _Slice(
                shape,
                number,
                width_ns,
                record.offset,
                record.line,
                time,
                [0.0] * size,
                [0] * size,
            )
            self._slices[key] = pooled
        _add(pooled, batch, time)

    def flush(self) -> None:
        """Give what is pooled so far."""
        for key, pooled in self._slices.items():
            self._close(key, pooled)
        self._slices.clear()

    def _close(self, key: _Key, pooled: _Slice) -> None:
        """Give a slice. What was counted in it was counted since the end of the one before."""
        self._given += 1
        grown = (self._given - MAX_SINGLE) // MAX_SINGLE
        self._width_ns = _SLICES_NS[min(grown, len(_SLICES_NS) - 1)]
        self.has_pooled = True
        gained_ns = None
        if _since_ns(pooled.time) is not None:
            end_ns = (pooled.number + 1) * pooled.width_ns
            before_ns = self._ends.get(key, end_ns)
            gained_ns = end_ns - before_ns if before_ns < end_ns else pooled.width_ns
            self._ends[key] = end_ns
        metrics = _pooled_metrics(pooled, gained_ns)
        self._give(pooled.offset, pooled.line, pooled.time, key[0], metrics)

    def _give(
        self, offset: int, line: int, time: LineTime, engine: str | None, metrics: list[Metric]
    ) -> None:
        row = SampleRow(
            offset=offset, line=line, observed_at_ns=None, engine=engine, metrics=metrics
        )
        self._emit(row, None if time == NO_TIME else time)


def _since_ns(time: LineTime) -> int | None:
    return time.instant_ns if time.naive_ns is None else time.naive_ns


def _number(time: LineTime, pooled: _Slice | None, width_ns: int) -> int:
    """Which slice a line is in."""
    since_ns = _since_ns(time)
    if since_ns is not None:
        return since_ns // width_ns
    if pooled is None:
        return 0
    return pooled.number + (pooled.lines >= _UNDATED_LINES)


def _add(pooled: _Slice, batch: Batch, time: LineTime) -> None:
    pooled.lines += 1
    pooled.time = time
    sums, counts, values = pooled.sums, pooled.counts, batch.values
    for at, (place, _gauge) in enumerate(batch.shape.gauges):
        text = values[place]
        if "n" not in text:
            sums[at] += float(text)
            counts[at] += 1
    if batch.shape.has_rate:
        pooled.rate = since_start(batch)


def _pooled_metrics(pooled: _Slice, gained_ns: int | None) -> list[Metric]:
    metrics = []
    gained: dict[str, float] = {}
    for (_place, gauge), total, count in zip(
        pooled.shape.gauges, pooled.sums, pooled.counts, strict=True
    ):
        if gauge.window == _SUMMED:
            gained[gauge.metric] = total
            metrics.append(_metric(gauge, total, gained_ns, None))
        elif count:
            metrics.append(_metric(gauge, total / count, gained_ns, (total, float(count))))
    if pooled.shape.kind == "prefill":
        cached, new = gained["cached_tokens"], gained["computed_tokens"]
        metrics.append(prompt_hit(cached, new, window="interval", window_ns=gained_ns))
    if pooled.rate is not None:
        metrics.append(pooled.rate)
    return metrics


def _metric(
    gauge: Gauge, value: float, gained_ns: int | None, mean_of: tuple[float, float] | None
) -> Metric:
    return Metric(
        metric=gauge.metric,
        value=value,
        unit=gauge.unit,
        hit_unit=gauge.hit_unit,
        window="interval",
        window_ns=gained_ns,
        numerator=None if mean_of is None else mean_of[0],
        denominator=None if mean_of is None else mean_of[1],
    )
