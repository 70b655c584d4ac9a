"""How much of a trace is replayed, and how it is grown, thinned or compressed first."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from kvtrace.errors import UsageError
from kvtrace.scenarios.document import Reader
from kvtrace.scenarios.keys import keys_of, parse_seconds, read_fields

GROWTH_SPREAD_S: Final = 300.0
"""A session that growth adds begins up to so long before or after the one it is a copy of: long
against a burst, short against the course of a day. An assumption."""
ROOT_SHARE: Final = 0.01
"""Blocks that so many of all sessions have (system prompts, tools) are taken to be in new sessions
too; what fewer share stays inside one copy. An assumption."""


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of a replay, made from those of a dataset."""

    requests: int | None = None
    """Only the first so many requests; then all of them are replayed, whatever the depth."""
    thin: float = 1.0
    """Each session is kept with this probability."""
    growth: int = 1
    """So many copies of each session, the logged one included."""
    growth_spread_s: float = GROWTH_SPREAD_S
    root_share: float = ROOT_SHARE
    compress: float = 1.0
    """All arrivals so many times closer together: another test than growth."""
    closed_loop: bool = False
    """A turn of a session comes its think time after the turn before it has ended."""
    think_s: float | None = None
    """Closed loop: this think time for every turn; null: as logged."""
    by_conversation: bool = False
    """Sessions are the conversations that blocks show, where the log names none. So it is with all
    that follows sessions: thinning, growth, a closed loop, generated blocks that are kept."""

    @property
    def follows_sessions(self) -> bool:
        """Whether it matters which requests are turns of one session."""
        return self.by_conversation or self.thin != 1 or self.growth != 1 or self.closed_loop

    def changed(self, other: Load) -> Load:
        """This load, with what `other` states (differs from the default in) instead."""
        default = Load()
        stated = {
            one.name: getattr(other, one.name)
            for one in fields(Load)
            if getattr(other, one.name) != getattr(default, one.name)
        }
        return replace(self, **stated)

    def words(self) -> str:
        """What was done to the logged requests, in short; empty where nothing was."""
        parts = []
        if self.requests is not None:
            parts.append(f"first {self.requests:,} requests")
        if self.thin != 1:
            parts.append(f"sessions thinned to {self.thin:g}")
        if self.growth != 1:
            parts.append(f"sessions superposed x {self.growth}")
        if self.compress != 1:
            parts.append(f"time compressed x {self.compress:g}")
        if self.closed_loop:
            think = "as logged" if self.think_s is None else f"{self.think_s:g} s"
            parts.append(f"closed loop, think time {think}")
        return ", ".join(parts)


LOAD_KEYS: Final = tuple(keys_of(Load))


def read_load(reader: Reader) -> Load:
    """The load that the top level of a document states.

    Raises:
        UsageError: a value that cannot be used.
    """
    load = Load(**read_fields(reader, keys_of(Load)))  # type: ignore[arg-type]
    wrong = _wrong(load)
    if wrong is not None:
        raise reader.fault(wrong, f"`{wrong}` is not {_RANGES[wrong]}")
    return load


def check_load(load: Load) -> Load:
    """The load of a command line, if it is one.

    Raises:
        UsageError: a number out of its range.
    """
    wrong = _wrong(load)
    if wrong is not None:
        raise UsageError("KVT-N030", f"`--{wrong}` is not {_RANGES[wrong]}")
    return load


_RANGES: Final = {
    "requests": "above zero",
    "thin": "in (0, 1]",
    "growth": "above zero",
    "compress": "above zero",
}


def _wrong(load: Load) -> str | None:
    """The key whose number is out of its range."""
    ranges = {
        "requests": load.requests is None or load.requests > 0,
        "thin": 0 < load.thin <= 1,
        "growth": load.growth >= 1,
        "compress": 0 < load.compress < float("inf"),
    }
    return next((key for key, is_right in ranges.items() if not is_right), None)


def parse_think(text: str) -> float | None:
    """The think time of a flag: `logged` (null) or a duration."""
    return None if text == "logged" else parse_seconds(text)
