"""A scenario as it was written: its TOML, where it came from, and faults that name the place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final, TypeVar

from kvtrace.cost.evidence import number
from kvtrace.cost.names import build_index, find_name
from kvtrace.cost.toml_lines import line_of
from kvtrace.errors import Location, UsageError

Value = TypeVar("Value")
OPTIONS: Final = (
    "recompute",
    "hbm_only",
    "kv_routing",
    "dram_idle",
    "dram_idle_kv_routing",
    "pool_dram_tcp",
    "pool_dram_rdma_bounce",
    "pool_dram_rdma_direct",
)
"""Options that every audit compares; each is a scenario by its id."""


@dataclass(frozen=True, slots=True)
class Document:
    """One TOML document with its place."""

    name: str
    """The id of what it describes: the shipped name, or the file's name without its ending."""
    origin: str
    """As a reader finds it: the file as given, or `shipped scenario poison`."""
    text: str
    table: Mapping[str, object]
    prefix: tuple[str, ...] = ()
    """Where `table` stands in `text`, if it is a part of it."""
    swept: Mapping[str, str] = field(default_factory=dict)
    """What a sweep set: the flag's text by the dotted place in the whole document."""

    def place(self, path: Sequence[str]) -> Location:
        """File and line of a key; of one that a sweep set, the flag that did."""
        whole = (*self.prefix, *path)
        shown = f"`{'.'.join(whole)}`" if path else None
        for length in range(len(whole), 0, -1):
            flag = self.swept.get(".".join(whole[:length]))
            if flag is not None:
                shown = f"set by `--sweep {flag}`"
                break
        return Location(self.origin, line=line_of(self.text, whole), detail=shown)

    def beside(self, name_or_file: str) -> str:
        """A file that the document names, relative to its own folder; any other name as it is."""
        if not (name_or_file.endswith(".toml") and self.origin.endswith(".toml")):
            return name_or_file
        return str(Path(self.origin).parent / name_or_file)


def shipped_scenarios() -> tuple[str, ...]:
    """Names of the scenarios that come with the program."""
    return _shipped("scenarios")


def shipped_topologies() -> tuple[str, ...]:
    """Names of the topologies that come with the program."""
    return _shipped("topologies")


def load_scenario(name_or_file: str) -> Document:
    """A scenario by its shipped name, an option id, or the TOML file of a path.

    Raises:
        UsageError: unknown, with close names; unreadable; or not TOML.
    """
    if name_or_file in OPTIONS:
        text = f'base = "{name_or_file}"\n'
        return Document(name_or_file, f"option {name_or_file}", text, tomllib.loads(text))
    return _load(name_or_file, "scenario", (*shipped_scenarios(), *OPTIONS), "KVT-N001")


def load_topology(name_or_file: str) -> Document:
    """A topology by its shipped name, or the TOML file of a path.

    Raises:
        UsageError: unknown, with close names; unreadable; or not TOML.
    """
    return _load(name_or_file, "topology", shipped_topologies(), "KVT-N002")


def _shipped(folder: str) -> tuple[str, ...]:
    found = (resources.files("kvtrace.scenarios") / folder).iterdir()
    return tuple(sorted(one.name[:-5] for one in found if one.name.endswith(".toml")))


def _load(name_or_file: str, what: str, known: Sequence[str], code: str) -> Document:
    if name_or_file.endswith(".toml"):
        return _read(Path(name_or_file))
    found = find_name(
        name_or_file,
        build_index((name, ()) for name in known),
        what=what,
        code=code,
        hint=f"use one of {', '.join(known)}, or a file that ends in .toml",
    )
    if found in OPTIONS:
        return load_scenario(found)
    folder = "scenarios" if what == "scenario" else "topologies"
    place = resources.files("kvtrace.scenarios") / folder / f"{found}.toml"
    text = place.read_text(encoding="utf-8")
    return Document(found, f"shipped {what} {found}", text, tomllib.loads(text))


def _read(path: Path) -> Document:
    try:
        text = path.read_text(encoding="utf-8-sig")
        return Document(path.stem, str(path), text, tomllib.loads(text))
    except OSError as error:
        raise UsageError(
            "KVT-N003", f"cannot read `{path}`", where=Location(str(path)), cause=error.strerror
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            "KVT-N004",
            f"`{path}` is not TOML",
            where=Location(str(path)),
            cause=str(error),
            hint='texts and quantities stand in quotes: `capacity = "4TB"`',
        ) from error


_QUOTED_KEY: Final = re.compile(r"`([A-Za-z0-9_.-]+)`")


def _holds(table: object, key: Sequence[str]) -> bool:
    """Whether the dotted key stands in the table."""
    for part in key:
        if not isinstance(table, Mapping) or part not in table:
            return False
        table = table[part]
    return True


class Reader:
    """One table of a document, with typed access."""

    def __init__(
        self, document: Document, table: Mapping[str, object], path: Sequence[str] = ()
    ) -> None:
        self.document = document
        self.table = table
        self.path = tuple(path)

    def fault(self, key: str | None, cause: str, *, hint: str | None = None) -> UsageError:
        """An error that names the file, the line and the key."""
        return self.fault_at(() if key is None else (key,), cause, hint=hint)

    def fault_at(self, below: Sequence[str], cause: str, *, hint: str | None = None) -> UsageError:
        """The same of a key that stands so many tables below."""
        return UsageError(
            "KVT-N010",
            f"`{self.document.origin}` cannot be used",
            where=self.document.place((*self.path, *below)),
            cause=cause,
            hint=hint or "docs/replay.md lists the keys, with examples",
        )

    def relay(self, section: str, error: UsageError) -> UsageError:
        """What another reader says of a table of this document, with the line of the key."""
        said = " ".join(filter(None, (error.message, error.cause, str(error.where or ""))))
        keys = [tuple(one.split(".")) for one in _QUOTED_KEY.findall(said)]
        places = [(section, *key) for key in keys if _holds(self.table.get(section), key)]
        path = max(places, key=len, default=(section,))
        cause = error.message if error.cause is None else error.cause
        return self.fault_at(path, cause, hint=error.hint)

    def check(self, allowed: Sequence[str], tables: str | None = None) -> None:
        """Refuse a key that is not allowed; `tables` is the hint for a table, NAME for its name.

        Raises:
            UsageError: with the close ones.
        """
        import difflib

        for key in self.table:
            if key not in allowed:
                if tables is not None and isinstance(self.table[key], Mapping):
                    hint = tables.replace("NAME", key)
                    raise self.fault(key, f"there is no table `[{key}]` here", hint=hint)
                close = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
                hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(allowed)}"
                raise self.fault(key, f"unknown key `{key}`", hint=hint)

    def has(self, key: str) -> bool:
        """Whether the table states it."""
        return key in self.table

    def section(self, key: str) -> Reader:
        """A table below; empty where it is absent."""
        return Reader(self.document, self._mapping(key), (*self.path, key))

    def sections(self, key: str) -> dict[str, Reader]:
        """The named tables below, in the order of the file."""
        inner = self.section(key)
        return {name: inner.section(name) for name in inner.table}

    def rows(self, key: str) -> list[Reader]:
        """A list of tables; empty where it is absent."""
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            raise self.fault(key, f"`{key}` is not a list of tables")
        return [Reader(self.document, one, (*self.path, key)) for one in value]

    def _mapping(self, key: str) -> Mapping[str, object]:
        value = self.table.get(key, {})
        if not isinstance(value, Mapping):
            raise self.fault(key, f"`{key}` is not a table")
        return value

    def quantity(self, key: str, parse: Callable[[str], float]) -> float:
        """A quantity of zero or more that stands with its unit, as a text."""
        value = self.table[key]
        if not isinstance(value, str):
            raise self.fault(key, f"`{key}` needs a unit, written as a text in quotes")
        try:
            return parse(value)
        except UsageError as error:
            raise self.fault(key, error.message, hint=error.hint) from error

    def number(self, key: str) -> float:
        """A number of zero or more."""
        try:
            value = number(self.table[key])
        except ValueError as error:
            raise self.fault(key, f"`{key}`: {error}") from error
        if value < 0:
            raise self.fault(key, f"`{key}` is below zero")
        return value

    def whole(self, key: str, *, least: int = 0) -> int:
        """A whole number of `least` or more."""
        value = self.number(key)
        if value != int(value) or value < least:
            raise self.fault(key, f"`{key}` is not a whole number of {least} or more")
        return int(value)

    def share(self, key: str) -> float:
        """A ratio, 0 to 1."""
        value = self.number(key)
        if value > 1:
            raise self.fault(key, f"`{key}` is a ratio, 0 to 1")
        return value

    def switch(self, key: str) -> bool:
        """Whether it is true."""
        value = self.table[key]
        if not isinstance(value, bool):
            raise self.fault(key, f"`{key}` is true or false")
        return value

    def word(self, key: str, allowed: Sequence[str] | None = None) -> str:
        """A text, one of `allowed` where those are given."""
        value = self.table[key]
        if not isinstance(value, str) or not value:
            raise self.fault(key, f"`{key}` is not a text")
        if allowed is not None and value not in allowed:
            raise self.fault(key, f"`{value}` is none of {', '.join(allowed)}")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.table[key]
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.fault(key, f"`{key}` is not a list of texts")
        return tuple(value)
