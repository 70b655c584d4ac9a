"""A fleet file: read, checked, and laid over the fleet as it would be without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kvtrace.cost.evidence import read_user_toml
from kvtrace.cost.fleet.fleet import Fleet
from kvtrace.cost.fleet.keys import FLAT, FLAT_PRICES, SECTIONS, Key, fleet_keys
from kvtrace.cost.fleet.lay import lay_over
from kvtrace.cost.fleet.values import Stated, read_value
from kvtrace.cost.toml_lines import line_of, remark_of, value_of
from kvtrace.errors import Location, UsageError

UNCONFIRMED: Final = "unconfirmed"
"""A remark that begins so keeps its line an estimate of kvtrace."""
FROM_LOGS: Final = "from logs"
"""A remark that begins so: the logs said it."""
Standing = Literal["stated", "logs", "unconfirmed"]
_HINT: Final = "docs/settings.md lists the keys, with an example; `kvtrace init` writes the file"


@dataclass(frozen=True, slots=True)
class FleetFile:
    """What a fleet file states, by the paths of its keys."""

    path: Path
    text: str
    """Empty where the statements stand in another document, whose lines are not known."""
    stated: Mapping[str, Stated]

    def standing(self, path: str) -> Standing | None:
        """Who stands behind a key; null where the file does not state it."""
        found = self.stated.get(path)
        return None if found is None else found.standing

    def raw(self, path: str) -> str:
        """The value of a key as the file writes it; a range that is a table, on one line."""
        found = self.stated.get(path)
        if found is None or found.line is None:
            return ""
        written = value_of(self.text.splitlines()[found.line - 1])
        if written or fleet_keys()[path].reads not in ("number", "share"):
            return written
        ends = {"value": found.value, "low": found.low, "high": found.high}
        inner = ", ".join(f"{name} = {end!r}" for name, end in ends.items() if end is not None)
        return f"{{ {inner} }}"

    def why(self, path: str) -> str:
        """What the logs say of a key, where its line names them."""
        found = self.stated.get(path)
        if found is None or found.standing != "logs" or found.line is None:
            return ""
        section, _, name = path.rpartition(".")
        remark = remark_of(self.text, (section, name)) or remark_of(self.text, (name,))
        return remark[len(FROM_LOGS) :].lstrip(": ")

    def whole(self, path: str) -> int | None:
        """A whole number that the file states."""
        found = self.stated.get(path)
        return None if found is None or not isinstance(found.value, int) else found.value

    def over(self, base: Fleet) -> Fleet:
        """`base` with what the file states.

        Raises:
            UsageError: a range that does not hold its value.
        """
        try:
            return lay_over(base, self.stated, self.path)
        except ValueError as error:
            raise UsageError(
                "KVT-C081",
                f"`{self.path}` is not a usable fleet file",
                where=Location(str(self.path)),
                cause=str(error),
                hint=_HINT,
            ) from error


def read_fleet_file(path: Path | str) -> FleetFile:
    """A user's fleet file, checked.

    Raises:
        UsageError: unreadable, an unknown key (with close ones), or a value that cannot be used.
    """
    path = Path(path)
    document = read_user_toml(path)
    text = path.read_text(encoding="utf-8")
    return _checked(document, path, text)


def load_fleet(path: Path | str, base: Fleet) -> Fleet:
    """`base` with what a user's TOML states.

    Raises:
        UsageError: as `read_fleet_file`.
    """
    return read_fleet_file(path).over(base)


def fleet_of(document: Mapping[str, object], base: Fleet, path: Path) -> Fleet:
    """`base` with what such a document states; `path` is where it stands.

    Raises:
        UsageError: as `read_fleet_file`.
    """
    return _checked(document, path, "").over(base)


def _checked(document: Mapping[str, object], path: Path, text: str) -> FleetFile:
    place = _Place(path, text)
    stated: dict[str, Stated] = {}
    keys = fleet_keys()
    for name, raw in document.items():
        if name in SECTIONS and isinstance(raw, Mapping) and not _is_range(raw):
            for inner, value in raw.items():
                dotted = f"{name}.{inner}"
                if dotted not in keys:
                    raise place.unknown((name, inner), [k.name for k in _of(name, keys)])
                stated[dotted] = place.stated(keys[dotted], value, (name, inner))
        elif (flat := _flat(name)) is not None:
            stated[flat] = place.stated(keys[flat], raw, (name,))
        else:
            raise place.unknown((name,), [*SECTIONS, *FLAT, *FLAT_PRICES])
    return FleetFile(path, text, stated)


def _flat(name: str) -> str | None:
    """The path of a key of the first fleet files."""
    return f"prices.{name}" if name in FLAT_PRICES else FLAT.get(name)


def _is_range(raw: Mapping[str, object]) -> bool:
    return "value" in raw


def _of(section: str, keys: Mapping[str, Key]) -> list[Key]:
    return [key for key in keys.values() if key.section == section]


@dataclass(frozen=True, slots=True)
class _Place:
    """The document, for faults that name the line."""

    path: Path
    text: str

    def stated(self, key: Key, raw: object, at: tuple[str, ...]) -> Stated:
        try:
            value, low, high = read_value(key, raw)
        except ValueError as error:
            raise self.fault(at, f"`{'.'.join(at)}`: {error}") from error
        except UsageError as error:
            raise self.fault(at, f"`{'.'.join(at)}`: {error.message}", hint=error.hint) from error
        return Stated(value, low, high, self._standing(at), line_of(self.text, at))

    def _standing(self, at: tuple[str, ...]) -> Standing:
        remark = remark_of(self.text, at).lower()
        if remark.startswith(UNCONFIRMED):
            return "unconfirmed"
        return "logs" if remark.startswith(FROM_LOGS) else "stated"

    def unknown(self, at: tuple[str, ...], known: list[str]) -> UsageError:
        import difflib

        close = difflib.get_close_matches(at[-1], known, n=1)
        meant = f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(known)}"
        return self.fault(at, f"unknown key `{'.'.join(at)}`{meant}")

    def fault(self, at: tuple[str, ...], cause: str, *, hint: str | None = None) -> UsageError:
        return UsageError(
            "KVT-C081",
            f"`{self.path}` is not a usable fleet file",
            where=Location(str(self.path), line_of(self.text, at)),
            cause=cause,
            hint=hint or _HINT,
        )
