"""A number of the cost model with its unit, interval, kind and source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal, cast, get_args

from kvtrace.errors import Location, UsageError

EvidenceKind = Literal["spec", "measured", "fitted", "assumed", "given"]
"""spec: a data sheet or a formula; measured: published measurement; fitted: to published
measurements; assumed: nobody read it anywhere; given: the user's own file."""

DATA_DIR: Final = Path(__file__).parent / "data"
_KINDS: Final = get_args(EvidenceKind)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant with its evidence; `low` and `high` are null where it is exact."""

    id: str
    """Dotted, such as `links.pcie5_x16.max_bytes_per_s`."""
    title: str
    value: float
    unit: str
    low: float | None
    high: float | None
    kind: EvidenceKind
    source: str
    as_of: str
    """Date of the source: a year, month or day."""

    def __post_init__(self) -> None:
        if self.low is not None and self.low > self.value:
            raise ValueError(f"{self.id}: low {self.low} is above the value {self.value}")
        if self.high is not None and self.high < self.value:
            raise ValueError(f"{self.id}: high {self.high} is below the value {self.value}")

    def scaled(self, factor: float) -> Constant:
        """The same constant with value and interval times `factor`."""
        return replace(
            self,
            value=self.value * factor,
            low=None if self.low is None else self.low * factor,
            high=None if self.high is None else self.high * factor,
        )

    def at_end(self, *, high: bool) -> Constant:
        """The constant at its low or high end, exact; as it is where that end is not known."""
        value = self.high if high else self.low
        return self if value is None else replace(self, value=value, low=None, high=None)

    def given(self, value: float, *, source: str) -> Constant:
        """The same constant as the user states it: exact, kind `given`."""
        return replace(self, value=value, low=None, high=None, kind="given", source=source)


def read_constant(
    entry: Mapping[str, object],
    *,
    id: str,
    unit: str = "",
    title: str = "",
    source: str = "",
    as_of: str = "",
) -> Constant:
    """A constant of a data file's table; the keywords serve where the table is silent."""
    low, high = entry.get("low"), entry.get("high")
    kind = str(entry.get("kind", "assumed"))
    if kind not in _KINDS:
        raise ValueError(f"{id}: unknown kind `{kind}`")
    return Constant(
        id=id,
        title=str(entry.get("title", title)),
        value=number(entry["value"]),
        unit=str(entry.get("unit", unit)),
        low=None if low is None else number(low),
        high=None if high is None else number(high),
        kind=cast("EvidenceKind", kind),
        source=str(entry.get("source", source)),
        as_of=str(entry.get("as_of", as_of)),
    )


def number(value: object) -> float:
    """The value as a float; raises ValueError for anything but a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{value}` is not a number")
    return float(value)


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of a CSV data file."""
    import csv

    with (DATA_DIR / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def read_toml(name: str) -> dict[str, dict[str, dict[str, object]]]:
    """A TOML data file: section, entry, field."""
    import tomllib

    with (DATA_DIR / name).open("rb") as file:
        return tomllib.load(file)


def read_user_toml(path: Path) -> dict[str, object]:
    """A user's TOML file.

    Raises:
        UsageError: the file is absent, unreadable or not TOML.
    """
    import tomllib

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UsageError(
            "KVT-C001",
            f"cannot read `{path}`",
            where=Location(str(path)),
            cause=error.strerror,
            hint="check the path, and that you may read it",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        at = re.search(r"at line (\d+)", str(error))
        raise UsageError(
            "KVT-C002",
            f"`{path}` is not TOML",
            where=Location(str(path), None if at is None else int(at.group(1))),
            cause=str(error),
            hint='texts and quantities stand in quotes: `dram = "4TiB"`',
        ) from error


def moves_constant(name: str) -> Constant:
    """A constant of data/moves.toml."""
    return read_constant(read_toml("moves.toml")["constants"][name], id=f"moves.{name}")


def price(name: str) -> Constant:
    """A constant of data/prices.toml."""
    return read_constant(read_toml("prices.toml")["constants"][name], id=f"prices.{name}")
