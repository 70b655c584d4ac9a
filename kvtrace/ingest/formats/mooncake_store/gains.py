"""Counters since start become what they gained between two lines of one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.contract import LineTime, LogClock

_MAX_PROCESSES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Gain:
    """What the counters of one process gained."""

    values: dict[str, float]
    window: str
    """cumulative: a first line, which says nothing of an interval."""
    window_ns: int | None


class Counters:
    """The last counters of each process; one that fell was started again, and counts from zero."""

    def __init__(self, clock: LogClock) -> None:
        self._clock = clock
        self._last: dict[str, dict[str, tuple[float, LineTime]]] = {}

    def gain(self, process: str, counters: dict[str, float], time: LineTime) -> Gain:
        """Take the counters of one line; one that the last lines lacked says nothing yet."""
        if len(self._last) >= _MAX_PROCESSES and process not in self._last:
            self._last.clear()
        last = self._last.setdefault(process, {})
        before = {name: last[name] for name in counters if name in last}
        last |= {name: (value, time) for name, value in counters.items()}
        if not before:
            return Gain(counters, "cumulative", None)
        if any(counters[name] < value for name, (value, _) in before.items()):
            return Gain(counters, "interval", None)
        gained = {name: counters[name] - value for name, (value, _) in before.items()}
        starts = {since for _, since in before.values()}
        elapsed = self._clock.elapsed_ns(starts.pop(), time) if len(starts) == 1 else None
        return Gain(gained, "interval", elapsed if elapsed is not None and elapsed > 0 else None)
