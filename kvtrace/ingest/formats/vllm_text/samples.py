"""Statistics on their way out: at once, unless the version that gives their hits a unit is open.

Without a printed version the unit follows from features of lines, which may come late. What waits
for them is bounded: then samples leave without a unit, which is what the log says so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from kvtrace.ingest.contract import Emit, LineTime, Metric, Record, SampleRow
from kvtrace.ingest.formats.vllm_text.stats import MetricSpec, ParsedStats, to_metrics

MAX_WAITING: Final = 16_384
"""Two days of statistics every ten seconds."""


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    offset: int
    line: int
    time: LineTime
    engine: str | None
    writer: str | None
    values: tuple[tuple[MetricSpec, float | None], ...]


class SampleBook:
    """Takes parsed statistics and gives sample rows."""

    def __init__(self, emit: Emit, hit_unit: Callable[[str | None], str | None]) -> None:
        self._emit = emit
        self._hit_unit = hit_unit
        self._waiting: deque[_Waiting] = deque()
        self._ranks: set[str] = set()
        self._aggregated = 0
        self.has_hits = False

    @property
    def engines(self) -> int:
        """Data-parallel engines that the labels name (`Engine 003`, `8 Engines Aggregated`)."""
        return max(self._aggregated, len(self._ranks))

    def give(
        self, record: Record, time: LineTime, engine: str | None, metrics: list[Metric]
    ) -> None:
        """Emit metrics whose meaning is known."""
        if engine is not None:
            self._count(engine)
        row = SampleRow(
            offset=record.offset,
            line=record.line,
            observed_at_ns=None,
            engine=engine,
            metrics=metrics,
        )
        self._emit(row, time)

    def take(
        self,
        record: Record,
        time: LineTime,
        parsed: ParsedStats,
        *,
        engine: str | None,
        writer: str | None,
    ) -> None:
        """Emit the line's sample, or hold it until its unit is known."""
        hits = {spec.hit for spec, _ in parsed.values}
        self.has_hits |= hits != {"none"}
        unit = self._hit_unit(writer) if "v1" in hits else None
        if unit is not None or "v1" not in hits:
            self.give(record, time, engine, to_metrics(parsed.values, v1_hit_unit=unit))
            return
        self._waiting.append(
            _Waiting(record.offset, record.line, time, engine, writer, parsed.values)
        )
        if len(self._waiting) > MAX_WAITING:
            self._release(self._waiting.popleft())

    def release(self) -> None:
        """Emit what waits, with the units that are known now."""
        while self._waiting:
            self._release(self._waiting.popleft())

    def release_known(self) -> None:
        """Emit what waits and need wait no longer; call when there is new evidence."""
        if self._waiting and all(
            self._hit_unit(writer) for writer in {held.writer for held in self._waiting}
        ):
            self.release()

    def _release(self, held: _Waiting) -> None:
        metrics = to_metrics(held.values, v1_hit_unit=self._hit_unit(held.writer))
        self.give(Record(held.offset, held.line, b""), held.time, held.engine, metrics)

    def _count(self, engine: str) -> None:
        if engine.startswith("Engine "):
            if len(self._ranks) < 10_000:
                self._ranks.add(engine)
        elif engine.endswith(" Engines Aggregated"):
            self._aggregated = max(self._aggregated, int(engine.partition(" ")[0]))
