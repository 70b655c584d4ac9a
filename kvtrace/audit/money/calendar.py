"""What a month is made of: the last day of the log, and how many replayed loads a day holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Data, ReplayWindow
from kvtrace.audit.view import count, rows_of
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S, S_PER_DAY

_DATED: Final = ("utc", "naive")


def last_day(
    queries: Mapping[str, ResultOfQuery],
    data: Data,
    generated_at: str | None,
    trace: RequestTrace | None = None,
) -> date | None:
    """The day of the last arrival of a log with dates, else that of the report; null: neither.

    Of `trace` where there is one, else of the last slice.
    """
    headline = next((source for source in data.sources if source.role == "headline"), None)
    if headline is not None and headline.clock in _DATED:
        if (day := day_of(trace, headline.clock)) is not None:
            return day
        rows = rows_of(queries, "coverage/over_time")
        starts = [start for row in rows if (start := count(row, "slice_start_ns")) is not None]
        if starts:
            return datetime.fromtimestamp(max(starts) // NS_PER_S, UTC).date()
    return None if generated_at is None else datetime.fromisoformat(generated_at).date()


def day_of(trace: RequestTrace | None, clock: str | None) -> date | None:
    """The day of the last arrival; null without one, or on a clock that has no dates."""
    if trace is None or not trace.requests or clock not in _DATED:
        return None
    return datetime.fromtimestamp(int(trace.arrived_at_ns.max()) // NS_PER_S, UTC).date()


def loads_per_day(prompt_tokens: int | None, of_load: int, span_s: float | None) -> float | None:
    """Loads of `of_load` prompt tokens in a mean day of data that hold `prompt_tokens`.

    Formula: prompt tokens of the data / those of the load / days of the data.
    """
    if not of_load or not span_s or not prompt_tokens:
        return None
    return prompt_tokens / of_load / (span_s / S_PER_DAY)


def windows_per_day(data: Data, window: ReplayWindow | None) -> float | None:
    """Replayed loads in a mean day of the log; null where that is not known."""
    if window is None:
        return None
    return loads_per_day(data.prompt_tokens, window.prompt_tokens, data.span_s)
