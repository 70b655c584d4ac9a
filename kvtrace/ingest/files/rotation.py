"""Pieces of one rotated log on a clock without a date: told by their names and their times.

Names alone prove nothing (`trace.1.jsonl` and `trace.2.jsonl` may be two traces), and neither do
times. Files are pieces of one log if their names differ only by a number or a date, their format
is the same, and their times follow each other without overlap: then they share one clock, and block
ids that mean something inside one file mean the same in all of them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import polars as pl

from kvtrace.ingest.blocks.table import agrees_with_length
from kvtrace.ingest.columns import FileRows
from kvtrace.ingest.sources import COUNTED, FileRead, time_range_ns
from kvtrace.schema.manifest import Note

Tail = Literal["counted", "dropped", "none"]
_PACKED: Final = re.compile(r"\.(?:gz|zst|zstd|bz2|xz)\Z")
_NUMBER: Final = r"(?:\d{4}-?\d\d-?\d\d(?:[T_-]?\d{2,6})?|\d{1,10})"
_AT_END: Final = re.compile(rf"(?P<stem>.+?)[._-]{_NUMBER}\Z")
_BEFORE_SUFFIX: Final = re.compile(rf"(?P<stem>.+?)[._-]{_NUMBER}(?P<suffix>\.[A-Za-z]{{2,6}})\Z")
_MAX_OVERLAP: Final = 0.01
"""Share of the shorter piece by which two may overlap: rows are written a little out of order."""
_SAME_SIZE_SHARE: Final = 0.99


def rotation_name(name: str) -> str:
    """The name without what rotation adds: `a.log.1`, `a.log-20240501.gz`, `a.0.log` → `a.log`."""
    name = _PACKED.sub("", name)
    if (match := _AT_END.fullmatch(name)) is not None:
        return match["stem"]
    if (match := _BEFORE_SUFFIX.fullmatch(name)) is not None:
        return match["stem"] + match["suffix"]
    return name


def join_rotations(reads: list[FileRead]) -> None:
    """Give the pieces of one log the number of its first file, in place, with a note."""
    by_name: dict[tuple[str, str], list[tuple[int, int, FileRead]]] = {}
    for read in reads:
        if read.format is None or read.context is None or read.context.clock not in COUNTED:
            continue
        span = time_range_ns(read)
        if span is not None:
            key = (read.format.name, rotation_name(read.entry.path))
            by_name.setdefault(key, []).append((*span, read))
    for pieces in by_name.values():
        pieces.sort(key=lambda piece: (piece[0], piece[1], piece[2].entry.file_id))
        for log in _adjoining(pieces):
            if len(log) > 1:
                _join([read for _first, _last, read in log])


def _adjoining(pieces: list[tuple[int, int, FileRead]]) -> list[list[tuple[int, int, FileRead]]]:
    """Runs of pieces in which each follows the one before it."""
    logs = [pieces[:1]]
    for before, after in pairwise(pieces):
        if _follows(before, after):
            logs[-1].append(after)
        else:
            logs.append([after])
    return logs


def _follows(before: tuple[int, int, FileRead], after: tuple[int, int, FileRead]) -> bool:
    """Whether a piece starts where the other ends, give or take; a whole missing piece is too much.

    Pieces that both start at 0 overlap, whatever their names are.
    """
    spans = [last - first for first, last, _read in (before, after)]
    gap = after[0] - before[1]
    return after[0] > before[0] and -_MAX_OVERLAP * min(spans) <= gap <= max(spans)


def _join(reads: list[FileRead]) -> None:
    number = min(read.entry.file_id for read in reads)
    names = ", ".join(read.entry.path for read in reads)
    message = (
        f"{names} are read as pieces of one log, in this order: their names are rotations of one "
        "another and their times follow each other; block ids mean the same in all of them"
    )
    for read in reads:
        read.log_id = number
        note = Note(code="rotated_files_joined", message=message, path=read.entry.path)
        read.entry.notes.append(note)
    _share_block_size(reads)


def _share_block_size(reads: list[FileRead]) -> None:
    """Let a piece that is too short to tell its block size take that of the others, if it fits."""
    told = {size: read.context for read in reads if (size := _size_of(read)) is not None}
    if len(told) != 1:
        return
    ((size, donor),) = told.items()
    tails = {read.context.partial_tail for read in reads if _size_of(read) == size and read.context}
    tail: Tail = min(tails - {"none"}, default="none")
    for read in reads:
        if read.context is None or donor is None or read.rows is None:
            continue
        if _size_of(read) is None:
            if not _fits(read.rows, size, tail):
                continue
            read.context.found_block_size_tokens = size
            read.context.block_size_reason = donor.block_size_reason
            read.context.evidence_grade = donor.evidence_grade
            kept = [note for note in read.entry.notes if note.code != "block_size_unknown"]
            read.entry.notes = kept
        if len(tails - {"none"}) < 2:
            read.context.partial_tail = tail


def _fits(rows: FileRows, size: int, tail: Tail) -> bool:
    """Whether nearly all rows of a piece have the blocks that the size implies."""
    if not len(rows.block_counts):
        return False
    blocks = pl.DataFrame({"request_key": rows.block_request_keys, "count": rows.block_counts})
    both = blocks.join(rows.requests.select("request_key", "prompt_tokens"), on="request_key")
    agrees = agrees_with_length(
        both["prompt_tokens"].fill_null(-1).to_numpy(),
        both["count"].to_numpy(),
        block_size_tokens=size,
        partial_tail=tail,
    )
    return bool(np.mean(agrees) >= _SAME_SIZE_SHARE)


def _size_of(read: FileRead) -> int | None:
    return None if read.context is None else read.context.found_block_size_tokens
