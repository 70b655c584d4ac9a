"""A table of a user's TOML with typed access, and faults that name the place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kvtrace.cost.evidence import Constant, number
from kvtrace.cost.toml_lines import line_of
from kvtrace.errors import Location, UsageError

_QUOTED_KEY: Final = re.compile(r"`([A-Za-z0-9_.-]+)`")


class TomlReader:
    """One table of the file, with typed access and faults that name the place."""

    def __init__(self, table: Mapping[str, object], path: Path, section: str = "") -> None:
        self.table = table
        self.path = path
        self.prefix = f"{section}." if section else ""

    def fault(self, cause: str) -> UsageError:
        """An error that names the file, for this cause."""
        return UsageError(
            "KVT-C042",
            f"`{self.path}` is not a usable hardware file",
            where=Location(str(self.path), self._line_of(cause)),
            cause=cause,
            hint="see docs/model/hardware.md for the keys and an example",
        )

    def unit_fault(self, key: str, error: UsageError) -> UsageError:
        """What is wrong with the unit of a value, with its place in the file."""
        return UsageError(
            error.code,
            error.message,
            where=Location(
                str(self.path), self._line_of(f"`{self.prefix}{key}`"), f"`{self.prefix}{key}`"
            ),
            hint=error.hint,
        )

    def _line_of(self, said: str) -> int | None:
        """The line of the key that is said first; null where it does not stand in the file."""
        key = _QUOTED_KEY.search(said)
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):  # a table of another document, or gone since
            return None
        return None if key is None else line_of(text, key.group(1).split("."))

    def check(self, allowed: tuple[str, ...]) -> None:
        """Refuse a key that is not allowed.

        Raises:
            UsageError: with the close ones.
        """
        unknown = [key for key in self.table if key not in allowed]
        if unknown:
            import difflib

            close = difflib.get_close_matches(unknown[0], allowed, n=1)
            meant = f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(allowed)}"
            raise self.fault(f"unknown key `{self.prefix}{unknown[0]}`{meant}")

    def section(self, name: str, allowed: tuple[str, ...]) -> TomlReader:
        """A table of the file; empty where it is absent."""
        table = self.table.get(name, {})
        if not isinstance(table, Mapping):
            raise self.fault(f"`{name}` is not a table")
        reader = TomlReader(table, self.path, name)
        reader.check(allowed)
        return reader

    def text(self, key: str, parse: Callable[[str], float]) -> float | None:
        """A quantity above zero, written with its unit."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.fault(f"`{self.prefix}{key}` needs a unit, written as a string")
        try:
            parsed = parse(value)
        except UsageError as error:
            raise self.unit_fault(key, error) from error
        if not 0 < parsed < math.inf:
            raise self.fault(f"`{self.prefix}{key}` is not above zero and finite")
        return parsed

    def number(self, key: str) -> float | None:
        """A number of zero or more."""
        value = self.table.get(key)
        if value is None:
            return None
        try:
            parsed = number(value)
        except ValueError as error:
            raise self.fault(f"`{self.prefix}{key}`: {error}") from error
        if not math.isfinite(parsed):
            raise self.fault(f"`{self.prefix}{key}` is not a finite number")
        if parsed < 0:
            raise self.fault(f"`{self.prefix}{key}` is below zero")
        return parsed

    def whole(self, key: str) -> int | None:
        """A whole number above zero."""
        value = self.number(key)
        if value is not None and (value < 1 or value != int(value)):
            raise self.fault(f"`{self.prefix}{key}` is not a whole number above zero")
        return None if value is None else int(value)

    def word(self, key: str, allowed: Sequence[str] | None = None) -> str | None:
        """A text, one of `allowed` where those are given."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self.fault(f"`{self.prefix}{key}` is not a text")
        if allowed is not None and value not in allowed:
            raise self.fault(f"`{self.prefix}{key}` is none of {', '.join(allowed)}")
        return value

    def share(self, key: str) -> float | None:
        """A ratio, 0 to 1."""
        value = self.number(key)
        if value is not None and value > 1:
            raise self.fault(f"`{self.prefix}{key}` is a ratio, 0 to 1")
        return value

    def given(self, constant: Constant, value: float | None) -> Constant:
        """The constant as the file states it; unchanged where it does not."""
        return constant if value is None else constant.given(value, source=str(self.path))

    def stated(self, id: str, title: str, value: float, unit: str) -> Constant:
        """A constant that only the file knows."""
        return Constant(
            id=id,
            title=title,
            value=value,
            unit=unit,
            low=None,
            high=None,
            kind="given",
            source=str(self.path),
            as_of="",
        )
