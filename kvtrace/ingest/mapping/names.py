"""Which keys of a log may be shown: names that somebody gave to fields, never data as a key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kvtrace.ingest.mapping.values import Keys, opened

_NAME: Final = re.compile(
    r"[A-Za-z_$][A-Za-z0-9_$ :/\-]{0,39}(?:\.[A-Za-z_][A-Za-z0-9_\-]{0,39}){0,5}"
)
_HEX: Final = re.compile(r"[0-9a-fA-F]{8,}|[0-9a-fA-F\-]{16,}")
_MAX_DIGITS: Final = 4
_SECRET: Final = re.compile(r"(?i)\A(?:sk|pk|rk|key|ghp|xox.|eyj)[-_]|@|://")
_HOST: Final = re.compile(r"(?i)\.(?:com|org|net|io|de|cn|internal|local|corp|lan|example)\Z")
_KEY: Final = re.compile(r"[A-Z0-9]{12,}|[A-Za-z0-9]{24,}")
"""Long runs of capitals, or of letters and digits: keys rather than words."""
MAX_DEPTH: Final = 6
_MAX_PATHS: Final = 2_000
_MAX_INDEX: Final = 1


def is_name(key: str) -> bool:
    """Whether a key looks like the name of a field: no id, address, secret or long number."""
    return (
        _NAME.fullmatch(key) is not None
        and sum(char.isdigit() for char in key) <= _MAX_DIGITS
        and not _HEX.fullmatch(key)
        and not _KEY.fullmatch(key)
        and _HOST.search(key) is None
        and _SECRET.search(key) is None
    )


def flattened(examples: Sequence[Mapping[str, object]]) -> dict[Keys, list[object]]:
    """Path → its values over these records, null too; only paths whose keys are all names.

    Of lists only the first element is looked into. JSON inside a text is opened.
    """
    found: dict[Keys, list[object]] = {}
    for example in examples:
        _collect((), example, found)
    return found


def _collect(keys: Keys, value: object, found: dict[Keys, list[object]]) -> None:
    for key, inner in opened(value).items():
        is_index = isinstance(value, list) or key.isdigit()
        if not (is_name(key) or (is_index and len(key) == _MAX_INDEX and int(key) == 0)):
            continue
        path = (*keys, key)
        if path not in found and len(found) >= _MAX_PATHS:
            continue
        found.setdefault(path, []).append(inner)
        if len(path) < MAX_DEPTH:
            _collect(path, inner, found)


def spelled(keys: Keys) -> str:
    """A path as people read it."""
    return ".".join(keys)


def close_names(wanted: str, keys: Iterable[Keys]) -> list[str]:
    """Names in the records that are spelled nearly as the wanted one."""
    names = {spelled(path): None for path in keys}
    lowered = {name.lower(): name for name in names}
    last = {path[-1].lower(): spelled(path) for path in keys}
    close = difflib.get_close_matches(wanted.lower(), lowered, n=1, cutoff=0.6)
    found = [lowered[one] for one in close]
    tail = wanted.rpartition(".")[2].lower()
    found += [last[one] for one in difflib.get_close_matches(tail, last, n=1, cutoff=0.7)]
    return list(dict.fromkeys(found))[:2]
