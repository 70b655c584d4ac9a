"""The clock of a Mooncake file: milliseconds from the start, or epoch milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.contract import ReadContext
from kvtrace.units import NS_PER_MS

_EPOCH_MS: Final = 10**11
"""From here on a number of ms is a date (1973 or later), not a time since the start."""


@dataclass(slots=True)
class ArrivalClock:
    """Turns timestamps into arrivals; the first one decides what the file counts from."""

    timed: int = 0
    untimed: int = 0
    disagreeing: int = 0
    out_of_order: int = 0
    is_epoch: bool | None = None
    latest_ms: float = -math.inf

    def arrival_ns(self, timestamp: float | None) -> tuple[int | None, tuple[str, ...]]:
        """Arrival of a row in ns, and its flags; null where its clock is not the file's."""
        if timestamp is None:
            self.untimed += 1
            return None, ()
        is_epoch = timestamp >= _EPOCH_MS
        if self.is_epoch is None:
            self.is_epoch = is_epoch
        if is_epoch != self.is_epoch:
            self.disagreeing += 1
            return None, ("clock_disagrees",)
        if timestamp < self.latest_ms:
            self.out_of_order += 1
        else:
            self.latest_ms = timestamp
        self.timed += 1
        if isinstance(timestamp, int):
            return timestamp * NS_PER_MS, ()
        return round(timestamp * NS_PER_MS), ()

    def judge(self, context: ReadContext) -> None:
        """Leave the clock and what was odd about it in the context."""
        if not self.timed:
            context.clock = "order"
            context.clock_reason = "no row has a timestamp"
        elif self.is_epoch:
            context.clock = "utc"
            context.clock_reason = "timestamp is in the range of epoch milliseconds"
        else:
            context.clock = "relative"
            context.clock_reason = "timestamp is taken as milliseconds from the start of the trace"
            context.note(
                "timestamp_unit_assumed",
                "timestamps are taken as milliseconds; guidellm writes seconds in the same "
                "columns, which cannot be told apart",
            )
        self._note_oddities(context)

    def _note_oddities(self, context: ReadContext) -> None:
        if self.out_of_order:
            context.note(
                "out_of_order",
                f"{self.out_of_order} rows are earlier than a row before them; "
                "they are put in order of time, ties in file order",
            )
        if self.disagreeing:
            context.note(
                "clock_disagrees",
                f"{self.disagreeing} rows are on another clock than the first; "
                "their arrival is unknown",
            )
        if self.timed and self.untimed:
            context.note(
                "arrival_unknown",
                f"{self.untimed} rows have no timestamp (turns with a `delay` start when the turn "
                "before ends, which is not recorded)",
            )
