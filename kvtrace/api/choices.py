"""A name that a person typed, as one of those that are known."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TypeVar

from kvtrace.errors import UsageError

Name = TypeVar("Name", bound=str)


def choose(name: str, known: Sequence[Name], *, code: str, what: str) -> Name:
    """The known name; `what` it is called is also its flag.

    Raises:
        UsageError: `code`, with the closest name.
    """
    for one in known:
        if name == one:
            return one
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4) or known
    raise UsageError(
        code,
        f"there is no {what} `{name}`",
        hint=f"`--{what} {close[0]}`; all are {', '.join(known)}",
    )
