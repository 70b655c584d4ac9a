"""The constants inside a profile or a table: all of them, or one at another value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from kvtrace.cost.evidence import Constant

T = TypeVar("T")


def collect_constants(*parts: object) -> tuple[Constant, ...]:
    """Every constant inside, each id once, in the order of the fields."""
    seen: dict[str, Constant] = {}
    for part in parts:
        for constant in _constants(part):
            seen.setdefault(constant.id, constant)
    return tuple(seen.values())


def replaced_constant(part: T, id: str, value: float) -> T:
    """The same with every constant of this id at `value`, without interval; itself without one."""

    def moved(constant: Constant) -> Constant:
        is_meant = constant.id == id
        return replace(constant, value=value, low=None, high=None) if is_meant else constant

    return cast("T", _replaced(part, moved))


def replaced_constants(part: T, change: Mapping[str, Constant]) -> T:
    """The same with other constants in place of those with their ids; itself without any."""
    return cast("T", _replaced(part, lambda constant: change.get(constant.id, constant)))


def _constants(part: object) -> Iterator[Constant]:
    if isinstance(part, Constant):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _constants(item)
    elif isinstance(part, Mapping):
        for item in part.values():
            yield from _constants(item)
    elif is_dataclass(part) and not isinstance(part, type):
        for field in fields(part):
            yield from _constants(getattr(part, field.name))


def _replaced(part: object, change: Callable[[Constant], Constant]) -> object:
    if isinstance(part, Constant):
        return change(part)
    if isinstance(part, tuple):
        items = tuple(_replaced(item, change) for item in part)
        return part if all(a is b for a, b in zip(items, part, strict=True)) else items
    if isinstance(part, Mapping):
        entries = {key: _replaced(item, change) for key, item in part.items()}
        return part if all(entries[key] is item for key, item in part.items()) else entries
    if is_dataclass(part) and not isinstance(part, type):
        changes: dict[str, Any] = {}
        for field in fields(part):
            before = getattr(part, field.name)
            after = _replaced(before, change)
            if after is not before:
                changes[field.name] = after
        return replace(part, **changes) if changes else part
    return part
