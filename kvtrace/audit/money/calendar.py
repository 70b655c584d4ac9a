"""What a month is made of: the last day of the log, and how many replayed loads a day holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Data, ReplayWindow
from kvtrace.audit.view import count, rows_of
from kvtrace.units import NS_PER_S, S_PER_DAY

_DATED: Final = ("utc", "naive")


def last_day(
    queries: Mapping[str, ResultOfQuery], data: Data, generated_at: str | None
) -> date | None:
    """The day of the last slice of a log with dates, else that of the report; null: neither."""
    headline = next((source for source in data.sources if source.role == "headline"), None)
    if headline is not None and headline.clock in _DATED:
        rows = rows_of(queries, "coverage/over_time")
        starts = [start for row in rows if (start := count(row, "slice_start_ns")) is not None]
        if starts:
            return datetime.fromtimestamp(max(starts) // NS_PER_S, UTC).date()
    return None if generated_at is None else datetime.fromisoformat(generated_at).date()


def windows_per_day(data: Data, window: ReplayWindow | None) -> float | None:
    """Replayed loads, by prompt tokens, in a mean day of the log; null where that is not known.

    Formula: prompt tokens of the data / prompt tokens of the window / days of the data.
    """
    if window is None or not window.prompt_tokens or not data.span_s or not data.prompt_tokens:
        return None
    return data.prompt_tokens / window.prompt_tokens / (data.span_s / S_PER_DAY)
