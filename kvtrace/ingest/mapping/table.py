"""A table of a mapping file: typed access, and faults that name file, key, cause and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Mapping as MappingAbc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast, get_args

from kvtrace.errors import Location, UsageError
from kvtrace.ingest.mapping.spec import FieldRef

_ALIASES: Final = {
    "llm": "model", "session_id": "session", "user_id": "user", "end_user": "user",
    "id": "request_id", "parent_id": "parent", "input_tokens": "prompt_tokens",
    "completion_tokens": "output_tokens", "latency": "e2e", "duration": "e2e",
    "hash_ids": "block_hashes", "messages": "prompt", "timestamp": "time.field",
    "arrived_at": "time.field", "itl": "tpot",
}  # fmt: skip
"""Words of others for our keys."""
_MAX_DEPTH: Final = 8
_MAX_KEY_CHARS: Final = 200

_LiteralT = TypeVar("_LiteralT", bound=str)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the file, with typed access and faults that name the place."""

    table: MappingAbc[str, object]
    path: str
    section: str = ""

    def spelled(self, key: str) -> str:
        """The key with the tables that it is in."""
        return f"{self.section}.{key}" if self.section else key

    def fault(self, cause: str, hint: str) -> UsageError:
        """The error that says what is wrong, and what to write."""
        return UsageError(
            "KVT-U032",
            "the mapping cannot be used",
            where=Location(self.path),
            cause=cause,
            hint=hint,
        )

    def wrong(self, key: str, cause: str, paste: str) -> UsageError:
        """The error about one key, with a line to paste."""
        return self.fault(f"`{self.spelled(key)}` {cause}", f"write `{paste}`")

    def check(self, allowed: Sequence[str]) -> None:
        """Refuse keys that mean nothing here."""
        unknown = next((key for key in self.table if key not in allowed), None)
        if unknown is None:
            return
        alias = _ALIASES.get(unknown)
        close = [alias] if alias else difflib.get_close_matches(unknown, allowed, n=3, cutoff=0.5)
        names = ", ".join(f"`{name}`" for name in close)
        hint = f"did you mean {names}?" if close else f"known here: {', '.join(allowed)}"
        raise self.fault(f"unknown key `{self.spelled(unknown)}`", hint)

    def sub(self, key: str, allowed: Sequence[str] | None = None) -> Table:
        """The table under a key, empty if it is absent; with only these keys."""
        found = self.table.get(key, {})
        if not isinstance(found, MappingAbc):
            raise self.fault(f"`{self.spelled(key)}` is not a table", f"write `[{key}]`")
        table = Table(found, self.path, self.spelled(key))
        if allowed is not None:
            table.check(allowed)
        return table

    def text(self, key: str, example: str) -> str | None:
        """A text that is not empty."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "is not a text", f'{key} = "{example}"')
        return value

    def switch(self, key: str) -> bool | None:
        """True or false."""
        value = self.table.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "is neither true nor false", f"{key} = true")
        return value

    def whole(self, key: str, low: int, high: int) -> int | None:
        """A whole number of this range."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(key, f"is no whole number from {low} to {high}", f"{key} = 16")
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str) -> str:
        """One of these texts."""
        value = self.table.get(key, default)
        if not isinstance(value, str) or value not in allowed:
            close = difflib.get_close_matches(str(value), allowed, n=1) or [allowed[0]]
            raise self.wrong(key, f"is none of {', '.join(allowed)}", f'{key} = "{close[0]}"')
        return value

    def values(self, key: str) -> frozenset[str]:
        """Texts, numbers or truth values, or a list of them, as they stand in a record."""
        value = self.table.get(key, [])
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str | int | float) for item in items):
            raise self.wrong(key, "holds something else than texts and numbers", f"{key} = [200]")
        return frozenset(map(_as_in_record, items))

    def names(self, key: str) -> tuple[str, ...]:
        """A list of different texts."""
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "is not a list of texts", f'{key} = ["ts", "id"]')
        if len(set(value)) < len(value):
            raise self.fault(f"`{self.spelled(key)}` names a column twice", "name each once")
        return tuple(value)

    def ref(self, key: str, value: object = None) -> FieldRef:
        """The field that a key names: a dotted path, or a list of keys."""
        found = self.table.get(key) if value is None else value
        if isinstance(found, str) and found:
            keys: tuple[str, ...] = tuple(found.split("."))
            ref = FieldRef(found, keys)
            if not all(keys):
                ref = FieldRef(found, (found,), is_literal=True)
        elif isinstance(found, list) and found and all(isinstance(one, str) for one in found):
            ref = FieldRef(".".join(found), tuple(found), is_literal=True)
        else:
            raise self.wrong(key, "names no field", f'{key} = "usage.{key}"')
        if len(ref.keys) > _MAX_DEPTH or len(ref.said) > _MAX_KEY_CHARS:
            raise self.fault(
                f"`{self.spelled(key)}` is deeper than {_MAX_DEPTH} keys or very long",
                "name a field nearer to the top of the record",
            )
        return ref

    def spec(self, key: str, allowed: Sequence[str]) -> Table | None:
        """The table of a key, `"x"` being short for `{ field = "x" }`; None if it is absent."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, MappingAbc):
            return Table({"field": value}, self.path, self.spelled(key))
        table = self.sub(key, ("field", *allowed))
        if "field" not in value:
            raise table.fault(
                f"`{table.section}` does not say which field it is",
                f'write `{key} = {{ field = "name" }}`',
            )
        return table


def _as_in_record(item: object) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    return str(item).strip().lower()


def literal_of(table: Table, key: str, kind: object, default: _LiteralT) -> _LiteralT:
    """One of the texts of a `Literal` type."""
    return cast("_LiteralT", table.choice(key, get_args(kind), default))
