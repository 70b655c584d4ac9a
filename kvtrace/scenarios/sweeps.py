"""Sweeps: a scenario with some of its keys set to other values, one by one or in a grid."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final, cast

from kvtrace.cost.evidence import read_user_toml
from kvtrace.errors import UsageError
from kvtrace.scenarios.document import Document
from kvtrace.scenarios.plan import TOP_KEYS

GRID: Final = "grid"
"""Axis of a run in which several keys differ from the start."""
_HARDWARE: Final = ("host_link", "tcp", "rdma", "dram", "nvme", "storage", "moves")
"""Sections of a hardware file that a key may begin with: `rdma.rate` is `hardware.rdma.rate`."""
_LINK_KEYS: Final = ("rate", "scope", "instances_per_link")
_TIER_OF: Final = {"dram_idle": "host_dram", "dram_idle_kv_routing": "host_dram"}


@dataclass(frozen=True, slots=True)
class Axis:
    """One key and the values that it takes in turn."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario of a sweep."""

    document: Document
    settings: tuple[tuple[str, str], ...] = ()
    """(key, value) of what differs from the start."""

    @property
    def changes(self) -> str:
        """All that differs, as text; empty for the start itself."""
        return ", ".join(f"{key}={value}" for key, value in self.settings)

    @property
    def axis(self) -> str | None:
        """The one key that differs; `grid` for several, null for none."""
        if len(self.settings) == 1:
            return self.settings[0][0]
        return GRID if self.settings else None

    @property
    def value(self) -> str | None:
        """The value of that one key."""
        return self.settings[0][1] if len(self.settings) == 1 else None


def parse_axis(text: str) -> Axis:
    """An axis of a text such as `pool.capacity=1TB,2TB`.

    Raises:
        UsageError: it has no key or no value.
    """
    key, _, rest = text.partition("=")
    values = tuple(dict.fromkeys(word.strip() for word in rest.split(",") if word.strip()))
    if not key.strip() or not values:
        raise UsageError(
            "KVT-N020", f"`{text}` is no sweep", hint="`--sweep pool.capacity=1TB,2TB,4TB`"
        )
    return Axis(key.strip(), values)


def expand(
    documents: Sequence[Document], axes: Sequence[Axis], *, one_at_a_time: bool
) -> list[Case]:
    """All scenarios of a sweep: the grid of the axes; or the start, then each value alone.

    Raises:
        UsageError: an axis that is named twice, or a key that a scenario does not have.
    """
    keys = [axis.key for axis in axes]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UsageError(
            "KVT-N021",
            f"`{twice}` is swept twice",
            hint=f"`--sweep {twice}=A,B,C` holds all values",
        )
    if one_at_a_time:
        steps = [((axis.key, value),) for axis in axes for value in axis.values]
        combinations = [(), *steps]
    else:
        pairs = [[(axis.key, value) for value in axis.values] for axis in axes]
        combinations = list(product(*pairs))
    return [_case(document, settings) for document in documents for settings in combinations]


def _case(document: Document, settings: tuple[tuple[str, str], ...]) -> Case:
    table = deepcopy(dict(document.table))
    swept: dict[str, str] = {}
    for key, value in settings:
        place = _place(document, table, key)
        _set(document, table, place, _scalar(value))
        swept[".".join(place)] = f"{key}={value}"
    return Case(replace(document, table=table, swept=swept), settings)


def _place(document: Document, table: Mapping[str, object], key: str) -> tuple[str, ...]:
    """Where a key of a sweep stands in the document.

    A tier by its name first, then the sections of a hardware file, then a link by its name.
    """
    path = tuple(key.split("."))
    first, rest = path[0], path[1:]
    if first in TOP_KEYS and (rest or first not in ("tier", "link")):
        return path
    if rest and first in _tiers(table):
        return ("tier", *path)
    if rest and first in _HARDWARE:
        return ("hardware", *path)
    if rest and rest[0] in _LINK_KEYS:
        return ("link", *path)
    tiers = ", ".join(_tiers(table)) or "none"
    raise UsageError(
        "KVT-N022",
        f"`{document.name}` has nothing that `{key}` could set",
        hint=f"`TIER.KEY` (tiers: {tiers}), `LINK.rate`, `rdma.rate` and other hardware, or a key"
        " of the scenario such as `instances` (docs/replay.md)",
    )


def _tiers(table: Mapping[str, object]) -> tuple[str, ...]:
    """The tiers of a scenario: those of its base, and its own."""
    base = str(table.get("base", ""))
    own = table.get("tier", {})
    of_base = ("pool",) if base.startswith("pool_") else tuple(filter(None, [_TIER_OF.get(base)]))
    return tuple(dict.fromkeys([*of_base, *(own if isinstance(own, Mapping) else ())]))


def _set(
    document: Document, table: dict[str, object], path: tuple[str, ...], value: object
) -> None:
    """Set a dotted key; a named hardware becomes the table that names it."""
    for key in path[:-1]:
        inner = table.get(key)
        if key == "hardware" and isinstance(inner, str):
            is_file = inner.endswith(".toml")
            file = Path(document.beside(inner))
            inner = read_user_toml(file) if is_file else {"gpu": inner}
        table[key] = dict(inner) if isinstance(inner, Mapping) else {}
        table = cast("dict[str, object]", table[key])
    if path[-1] == "capacity":
        table.pop("capacity_blocks", None)
    elif path[-1] == "capacity_blocks":
        table.pop("capacity", None)
    table[path[-1]] = value


def _scalar(text: str) -> object:
    """A number or a switch as TOML reads it; anything else is a text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text
