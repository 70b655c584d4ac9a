"""Completion of values in a shell; the values come from `kvtrace.api.complete`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtrace.api.completions import Kind


def completes(kind: Kind) -> Callable[[str], list[str]]:
    """A function for `autocompletion=` that gives the values of this kind."""

    def values(incomplete: str) -> list[str]:
        from kvtrace import api

        return api.complete(kind, incomplete)

    return values


def one_of(*known: str) -> Callable[[str], list[str]]:
    """The same of a few words that stand here."""

    def values(incomplete: str) -> list[str]:
        return [one for one in known if one.startswith(incomplete)]

    return values
