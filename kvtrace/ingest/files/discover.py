"""Which files the given paths mean: files, directories and globs, each inode once, in one order.

A file's name is relative to the given input, so that the same logs give the same dataset wherever
they lie. Order is by name; readers put rows in order of time, so `app.log.10` before `app.log.2`
does no harm.
"""

from __future__ import annotations

import difflib
import glob
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvtrace.errors import InputError, Location
from kvtrace.schema.manifest import Note

_GLOB_CHARS: Final = frozenset("*?[")
_SWAP_SUFFIXES: Final = (".swp", ".swo", ".swx", "~", ".tmp", ".part", ".lock")
_DOCUMENT_SUFFIXES: Final = (".md", ".markdown", ".rst")
_REPORT_FILES: Final = frozenset({"audit.json", "report.html"})
_MAX_SHOWN: Final = 5
_KINDS: Final = (
    (stat.S_ISFIFO, "a FIFO; pipe it into a file first"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@dataclass(frozen=True, slots=True)
class InputFile:
    """One regular file to read."""

    file_id: int
    """Index in the order of names."""
    path: Path
    name: str
    """As a person names it, relative to the given input."""
    byte_size: int
    modified_at_ns: int
    changed_at_ns: int
    """Of content or attributes: moves when a modification time is set back."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The files in order, and what was left out and why."""

    files: tuple[InputFile, ...]
    skipped: tuple[Note, ...]


@dataclass(slots=True)
class _Walk:
    """What one discovery has seen so far."""

    found: list[tuple[str, str, Path, os.stat_result]] = field(default_factory=list)
    """(name, name of the given input, path, stat)"""
    skipped: list[Note] = field(default_factory=list)
    seen_dirs: set[tuple[int, int]] = field(default_factory=set)

    def skip(self, code: str, name: str, reason: str) -> None:
        self.skipped.append(Note(code=code, message=f"left out: {reason}", path=printable(name)))


def discover(inputs: Sequence[Path | str]) -> Discovery:
    """The files that the inputs mean, each inode once, ordered by name.

    Raises:
        InputError: KVT-I001, an input does not exist.
    """
    walk = _Walk()
    for given in inputs:
        for path in _expand(os.fspath(given)):
            _visit_given(walk, path)
    return _ordered(walk)


def printable(name: str) -> str:
    """A file name that is safe to print and to encode: odd bytes and controls are escaped."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _expand(given: str) -> list[Path]:
    """The paths of one input; a name that exists is never taken for a pattern."""
    path = Path(given)
    if os.path.lexists(path):
        return [path]
    if _GLOB_CHARS & set(given):
        matches = sorted(glob.glob(given, recursive=True))
        if matches:
            return [Path(match) for match in matches]
        raise InputError(
            "KVT-I001",
            f"no file matches `{printable(given)}`",
            where=Location(printable(given)),
            hint=_near_pattern(given),
        )
    raise InputError(
        "KVT-I001",
        f"`{printable(given)}` does not exist",
        where=Location(printable(given)),
        hint=_close_matches(path),
    )


def _near_pattern(pattern: str) -> str:
    """The part of a pattern that exists, and what is there instead."""
    parts = Path(pattern).parts
    fixed = next(at for at, part in enumerate(parts) if _GLOB_CHARS & set(part))
    folder = Path(*parts[:fixed])
    if not folder.is_dir():
        return f"`{printable(str(folder))}` does not exist; {_close_matches(folder)}"
    names = _names_in(folder)
    shown = ", ".join(f"`{printable(name)}`" for name in names[:_MAX_SHOWN])
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return (
        f"`{printable(str(folder))}` holds {shown}{more}"
        if names
        else (f"`{printable(str(folder))}` is empty")
    )


def _close_matches(path: Path) -> str:
    """Names like the one that is not there, in the nearest folder that is."""
    parent = path.parent
    while not parent.is_dir() and parent != parent.parent:
        path, parent = parent, parent.parent
    siblings = _names_in(parent)
    close = difflib.get_close_matches(path.name, siblings, n=3)
    if close:
        return "did you mean " + " or ".join(f"`{printable(str(parent / n))}`" for n in close)
    return f"`{printable(str(parent))}` holds {len(siblings)} entries, none with a similar name"


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _visit_given(walk: _Walk, path: Path) -> None:
    try:
        status = path.stat()
    except OSError as error:
        walk.skip("skipped_unreadable", path.name, f"cannot be read ({error.strerror})")
        return
    given = os.path.basename(os.path.abspath(path))
    if stat.S_ISDIR(status.st_mode):
        _walk_dir(walk, path, status, given)
    else:
        _take(walk, path, status, path.name, given)


def _take(walk: _Walk, path: Path, status: os.stat_result, name: str, given: str) -> None:
    for is_kind, reason in _KINDS:
        if is_kind(status.st_mode):
            walk.skip("skipped_not_a_file", name, reason)
            return
    if stat.S_ISREG(status.st_mode):
        walk.found.append((name, given, path, status))


def _walk_dir(walk: _Walk, top: Path, status: os.stat_result, given: str) -> None:
    """Take the wanted files under `top`; a folder is entered once, so links cannot loop."""
    waiting = [(top, "", status)]
    while waiting:
        folder, prefix, own = waiting.pop()
        if (own.st_dev, own.st_ino) in walk.seen_dirs:
            if prefix:
                walk.skip("skipped_link", prefix.rstrip("/"), "a folder that was already read")
            continue
        walk.seen_dirs.add((own.st_dev, own.st_ino))
        for name, path, entry in _entries(walk, folder, prefix):
            if stat.S_ISDIR(entry.st_mode):
                waiting.append((path, f"{name}/", entry))
            else:
                _take(walk, path, entry, name, given)


def _entries(walk: _Walk, folder: Path, prefix: str) -> Iterator[tuple[str, Path, os.stat_result]]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        walk.skip("skipped_unreadable", prefix or ".", f"cannot be read ({error.strerror})")
        return
    if {"manifest.json", "open.sql"} <= set(names):
        walk.skip("skipped_own_output", prefix.rstrip("/") or ".", "a dataset of kvtrace")
        return
    is_report = "dataset" in names and bool(_REPORT_FILES & set(names))
    for base in names:
        name = prefix + base
        reason = _unwanted(base, is_report=is_report)
        if reason is not None:
            walk.skip(*reason[:1], name, reason[1])
            continue
        path = folder / base
        try:
            yield name, path, path.stat()
        except OSError as error:
            walk.skip("skipped_unreadable", name, f"cannot be read ({error.strerror})")


def _unwanted(base: str, *, is_report: bool) -> tuple[str, str] | None:
    """Code and reason for leaving a name out of a folder, or None."""
    lower = base.lower()
    if base.startswith("."):
        return "skipped_hidden", "hidden"
    if lower.endswith(_SWAP_SUFFIXES) or (base.startswith("#") and base.endswith("#")):
        return "skipped_swap", "a swap, lock or temporary file"
    if lower.endswith(_DOCUMENT_SUFFIXES) or lower.split(".")[0] in {"readme", "license"}:
        return "skipped_document", "a document, not a log"
    if is_report and base in _REPORT_FILES:
        return "skipped_own_output", "a report of kvtrace"
    return None


def _ordered(walk: _Walk) -> Discovery:
    names = Counter(name for name, _given, _path, _status in walk.found)
    named = sorted(
        (name if names[name] == 1 or name == given else f"{given}/{name}", str(path), path, status)
        for name, given, path, status in walk.found
    )
    files: list[InputFile] = []
    seen: dict[tuple[int, int], str] = {}
    for name, _text, path, status in named:
        inode = (status.st_dev, status.st_ino)
        if inode in seen:
            if seen[inode] != name:
                walk.skip("skipped_same_file", name, f"the same file as {printable(seen[inode])}")
            continue
        seen[inode] = name
        files.append(
            InputFile(
                len(files),
                path,
                printable(name),
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            )
        )
    skipped = sorted(walk.skipped, key=lambda note: (note.path or "", note.code))
    return Discovery(tuple(files), tuple(skipped))
