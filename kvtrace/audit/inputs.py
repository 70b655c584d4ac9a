"""What an audit is built from: everything that was read, asked and replayed, with its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import polars as pl

from kvtrace.audit.record import Cell
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import Manifest


class ResultOfQuery(Protocol):
    """A query result as the catalogue returns it."""

    @property
    def columns(self) -> Sequence[str]:
        """Column names, in order."""
        ...

    @property
    def units(self) -> Sequence[str]:
        """Unit of each column."""
        ...

    @property
    def meanings(self) -> Sequence[str]:
        """Meaning of each column."""
        ...

    @property
    def frame(self) -> pl.DataFrame:
        """The rows, in the query's total order."""
        ...


class SettingValue(NamedTuple):
    """One setting that shaped the result."""

    name: str
    value: Cell
    origin: str
    """flag | environment | the file's path | logs | default."""
    is_confirmed: bool
    """False for a default that nobody stated."""


HARMLESS_SETTINGS: Final = frozenset(
    {
        "block_size",
        "depth",
        "json",
        "lang",
        "mapping",
        "max_reject_rate",
        "output",
        "salt",
        "seed",
        "tz",
        "year",
    }
)
"""Settings whose defaults decide nothing about the verdict; any other one does until confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditInput:
    """Everything that an audit is made of."""

    manifest: Manifest
    queries: Mapping[str, ResultOfQuery]
    """By name; a query that was not run is simply absent."""
    replays: tuple[ReplayResult, ...]
    """Empty where nothing could be replayed."""
    trace: RequestTrace | None
    """Exactly the requests that were replayed; null without replays."""
    deployment: Deployment
    fleet: Fleet
    settings: Sequence[SettingValue]
    seed: int
    command: str
    generated_at: str | None
    span_s: float | None = None
    """First to last arrival of the data; null takes it from the trace or the time slices."""

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Decisive settings that nobody confirmed; a pool of assumed size is one."""
        names = [
            setting.name
            for setting in self.settings
            if not setting.is_confirmed and setting.name not in HARMLESS_SETTINGS
        ]
        is_pool_assumed = self.fleet.pool_nodes.kind == "assumed"
        return (*names, "pool size") if is_pool_assumed else tuple(names)
