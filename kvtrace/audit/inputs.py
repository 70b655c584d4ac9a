"""What an audit is built from: everything that was read, asked and replayed, with its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import polars as pl

from kvtrace.audit.record import Cell
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
