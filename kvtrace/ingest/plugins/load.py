"""Finds formats of other packages; one that cannot be used is an error that names its package."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Final, get_args

from kvtrace.errors import ExitCode, KvtraceError, Location, UsageError
from kvtrace.ingest.capabilities import CAPABILITIES
from kvtrace.ingest.contract import Format, Framing
from kvtrace.ingest.plugins.guard import guarded
from kvtrace.schema.manifest import Grade

GROUP: Final = "kvtrace.ingesters"
"""The group of entry points; each gives a `Format`, or a tuple or list of them."""
SWITCH: Final = "KVTRACE_NO_PLUGINS"
"""Environment variable that leaves formats of other packages out."""
_SLUG: Final = re.compile(r"[a-z][a-z0-9_]{1,63}")
_STOPS: Final = (ExitCode.INTERRUPTED, ExitCode.TERMINATED)


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of another package."""

    name: str
    distribution: str
    """Name and version of the package."""
    formats: tuple[Format, ...]
    fault: KvtraceError | None = None
    """Why it cannot be used."""


def find_plugins(taken: Collection[str]) -> tuple[Plugin, ...]:
    """Every entry point of the group, in order of package and name; nothing is raised.

    `taken` are the names that formats of kvtrace have.
    """
    if os.environ.get(SWITCH):
        return ()
    names = set(taken)
    found: list[Plugin] = []
    for point in sorted(metadata.entry_points(group=GROUP), key=_order):
        plugin = _open(point, names)
        names |= {one.name for one in plugin.formats}
        found.append(plugin)
    return tuple(found)


def plugin_formats(taken: Collection[str]) -> tuple[Format, ...]:
    """The formats of all plug-ins.

    Raises:
        UsageError: one cannot be used; it names the package and how to go on without.
    """
    plugins = find_plugins(taken)
    for plugin in plugins:
        if plugin.fault is not None:
            raise plugin.fault
    return tuple(one for plugin in plugins for one in plugin.formats)


def _order(point: metadata.EntryPoint) -> tuple[str, str, str]:
    return _package(point).lower(), point.name, point.value


def _package(point: metadata.EntryPoint) -> str:
    """Name and version of the package; a damaged installation has neither."""
    held = point.dist
    return "an unnamed package" if held is None else f"{held.name} {held.version}"


def _open(point: metadata.EntryPoint, taken: Collection[str]) -> Plugin:
    package = _package(point)
    try:
        made = tuple(_formats(_loaded(point), point, package))
        for index, one in enumerate(made):
            _check(one, point, package, {*taken, *(other.name for other in made[:index])})
    except KvtraceError as fault:
        return Plugin(point.name, package, (), fault)
    return Plugin(point.name, package, tuple(guarded(one, package) for one in made))


def _loaded(point: metadata.EntryPoint) -> object:
    package = _package(point)
    try:
        return point.load()
    except SystemExit as stop:
        if stop.code in _STOPS:  # a person stopped us, not the package
            raise
        cause = "it ended the program while it was loaded"
    except Exception as error:  # noqa: BLE001 (another's code may raise anything)
        cause = f"{type(error).__name__}: {error}"
    raise UsageError(
        "KVT-P001",
        f"the formats of package `{package}` cannot be loaded",
        where=_where(point),
        cause=cause,
        hint=_go_on(point),
    )


def _formats(found: object, point: metadata.EntryPoint, package: str) -> Iterator[Format]:
    given = found if isinstance(found, tuple | list) else (found,)
    for one in given:
        if not isinstance(one, Format):
            raise UsageError(
                "KVT-P002",
                f"package `{package}` gives a {type(one).__name__}, which is no format",
                where=_where(point),
                cause="an entry point is a `kvtrace.ingest.contract.Format`, or a tuple of them",
                hint=_go_on(point),
            )
        yield replace(one, distribution=package)


def _check(one: Format, point: metadata.EntryPoint, package: str, taken: Collection[str]) -> None:
    """Refuse a format that contradicts itself or takes another's name."""
    wrong = _contradiction(one, taken)
    if wrong:
        raise UsageError(
            "KVT-P003",
            f"format `{one.name}` of package `{package}` cannot be used",
            where=_where(point),
            cause=wrong,
            hint=_go_on(point),
        )


def _contradiction(one: Format, taken: Collection[str]) -> str | None:
    if not isinstance(one.name, str) or not _SLUG.fullmatch(one.name):
        return "its name is no slug, as `my_gateway`"
    if one.name in taken:
        return "another format has this name"
    if one.framing not in get_args(Framing):
        return f"its framing is none of {', '.join(get_args(Framing))}"
    if one.best_grade not in get_args(Grade):
        return f"its grade is none of {', '.join(get_args(Grade))}"
    works: tuple[object, ...] = (one.sniff, one.read)
    if not all(map(callable, works)):
        return "`sniff` and `read` are not both functions"
    unknown = sorted(set(one.missing) - set(CAPABILITIES))
    if unknown:
        return f"`missing` has {', '.join(unknown)}; its keys are {', '.join(CAPABILITIES)}"
    return None


def _where(point: metadata.EntryPoint) -> Location:
    return Location(f"entry point {point.name} = {point.value}")


def _go_on(point: metadata.EntryPoint) -> str:
    held = point.dist
    name = "PACKAGE" if held is None else held.name
    return f"`python -m pip uninstall {name}`, or `{SWITCH}=1` to go on without such packages"
