"""Which requests of a log were replayed, and which were left out, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvtrace.api.loads import Loaded
from kvtrace.scenarios.load import Load


@dataclass(frozen=True, slots=True)
class ReplayedWindow:
    """The requests of one load."""

    load: str
    """What was done to the logged requests; empty: nothing."""
    requests: int
    """Replayed and scored."""
    warmup_requests: int
    """Before them, to fill the caches."""
    of_requests: int
    """Of the load, those that were left out included."""
    refused_requests: int
    """Left out: not every scenario has an instance that holds them."""
    is_busiest_hour: bool

    def document(self) -> dict[str, object]:
        """For scripts."""
        return {name: getattr(self, name) for name in self.__slots__}

    def lines(self) -> list[str]:
        """What was replayed, and what was left out."""
        of = f"{self.load}: " if self.load else ""
        if self.is_busiest_hour:
            warm = f"{self.warmup_requests:,} before it fill the caches"
            what = f"the busiest hour, {self.requests:,} of {self.of_requests:,} requests"
            lines = [f"{of}{what}; {warm}; `--depth full` replays all"]
        else:
            lines = [f"{of}{self.requests:,} of {self.of_requests:,} requests replayed"]
        if self.refused_requests:
            lines.append(
                f"{self.refused_requests:,} requests are left out: not every scenario has an "
                "instance that holds them"
            )
        return lines


def windows_of(loads: Mapping[Load, Loaded]) -> tuple[ReplayedWindow, ...]:
    """One row a load, in their order."""
    return tuple(_window(load, loaded) for load, loaded in loads.items())


def _window(load: Load, loaded: Loaded) -> ReplayedWindow:
    windowed = loaded.arrivals.windowed
    scored = windowed.trace.requests - windowed.first
    return ReplayedWindow(
        load=load.words(),
        requests=scored,
        warmup_requests=windowed.first,
        of_requests=loaded.requests + loaded.refused_requests,
        refused_requests=loaded.refused_requests,
        is_busiest_hour=scored < loaded.requests,
    )
