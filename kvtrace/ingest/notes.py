"""The notes of a run: one a code, with how many files it concerns and which; details stay there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kvtrace.ingest.columns import RowCollector
from kvtrace.ingest.values.limits import IMPLAUSIBLE_FLAG, PLAUSIBLE_TOKENS
from kvtrace.schema.manifest import FileEntry, Note, NoteSeverity, SourceEntry

NOT_RECOGNISED: Final = "not_recognised"
_MAX_NAMED: Final = 3


def run_notes(
    skipped: Iterable[Note], files: Sequence[FileEntry], sources: Sequence[SourceEntry]
) -> list[Note]:
    """What a reader of the totals must know, once a code."""
    of_files = (note for entry in files for note in entry.notes if note.code != NOT_RECOGNISED)
    of_sources = (note for source in sources for note in source.notes)
    about_run = (_unrecognised(files), _beside(files, sources))
    notes = [note for note in about_run if note is not None]
    return [*notes, *merged([*skipped, *of_files, *of_sources])]


def merged(notes: Iterable[Note]) -> list[Note]:
    """One note a code, in order of first appearance."""
    by_code: dict[str, list[Note]] = {}
    for note in notes:
        by_code.setdefault(note.code, []).append(note)
    return [_one(group) for group in by_code.values()]


def _one(group: list[Note]) -> Note:
    first = group[0]
    if len(group) == 1:
        return first
    severity: NoteSeverity = "info"
    if any(note.severity == "warning" for note in group):
        severity = "warning"
    paths = [note.path for note in group if note.path is not None]
    if len({note.message for note in group}) == 1:
        message = f"{first.message} ({_counted(paths, len(group))})"
    else:
        where = f"{first.path}: " if first.path is not None else ""
        others = _counted(paths[1:], len(group) - 1, "more ")
        message = f"{where}{first.message} (and {others} in their own words)"
    return Note(code=first.code, message=message, severity=severity)


def _counted(paths: Sequence[str], count: int, more: str = "") -> str:
    """`31 files: a, b, c …`."""
    if not paths:
        return f"{count:,} {more}times"
    noun = "file" if count == 1 else "files"
    return f"{count:,} {more}{noun}: {named(paths)}"


def named(paths: Sequence[str]) -> str:
    """The first names, and that there are more."""
    return ", ".join(paths[:_MAX_NAMED]) + (" …" if len(paths) > _MAX_NAMED else "")


def not_recognised(entry: FileEntry) -> Note:
    """Why a file was not read, where scripts look for it."""
    return Note(
        code=NOT_RECOGNISED, message=entry.format_reason, path=entry.path, severity="warning"
    )


def implausible_lengths(path: str, collector: RowCollector) -> Note:
    """How many requests of a file are longer than anything that is served, and where they stand."""
    lines = ", ".join(map(str, collector.implausible_lines))
    more = " …" if collector.implausible > len(collector.implausible_lines) else ""
    return Note(
        code=IMPLAUSIBLE_FLAG,
        message=f"{collector.implausible:,} requests have more than {PLAUSIBLE_TOKENS:,} prompt or "
        f"output tokens, more than any published context (line {lines}{more}); they are kept as "
        "they stand and flagged, and sums and means contain them",
        path=path,
        severity="warning",
    )


def _unrecognised(files: Sequence[FileEntry]) -> Note | None:
    paths = [entry.path for entry in files if entry.format is None]
    if not paths:
        return None
    verb = "was" if len(paths) == 1 else "were"
    return Note(
        code=NOT_RECOGNISED,
        message=f"{len(paths):,} of {len(files):,} files {verb} not recognised: {named(paths)}",
        severity="warning",
    )


def _beside(files: Sequence[FileEntry], sources: Sequence[SourceEntry]) -> Note | None:
    """Which share of all requests stands beside the totals."""
    beside = [source for source in sources if source.role == "beside" and source.requests]
    left_out = sum(source.requests for source in beside)
    if not left_out:
        return None
    everything = sum(source.requests for source in sources)
    names = {entry.file_id: entry.path for entry in files}
    paths = [names[number] for source in beside for number in source.files if number in names]
    return Note(
        code="sources_beside",
        message=f"{left_out:,} of {everything:,} requests ({left_out / everything:.0%}) stand "
        f"beside the totals and are in none of them, because they may be the same requests as the "
        f"headline's: {named(paths)}",
        severity="warning",
    )
