"""Writes a dataset as an anonymised trace, or says why it cannot be one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from kvtrace.errors import InputError, Location, OutputError, UsageError
from kvtrace.export.rows import ExportRows, load_rows
from kvtrace.export.targets import TARGETS, TIMED_ONLY, Target, leave_out
from kvtrace.store.dataset import Dataset
from kvtrace.store.packed import Sink, put_lines, write_lines


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    target: str
    path: Path | None
    """None: written to the caller's stream."""
    requests: int
    block_size_tokens: int | None
    left_out: dict[str, int]
    notes: tuple[str, ...]
    try_it: str
    """How the tool reads it."""

    def to_json(self) -> str:
        """What was written and left out, for scripts."""
        document = {
            "schema_version": 1,
            "target": self.target,
            "path": None if self.path is None else str(self.path),
            "requests": self.requests,
            "block_size_tokens": self.block_size_tokens,
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
            "try_it": self.try_it,
        }
        return json.dumps(document, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1)

    def summary(self) -> list[str]:
        """What went out, what did not, and how to go on: for stderr."""
        size = (
            "" if self.block_size_tokens is None else f", {self.block_size_tokens} tokens a block"
        )
        lines = [f"{self.target}: {self.requests:,} requests{size}"]
        lines += [f"left out: {count:,} {reason}" for reason, count in self.left_out.items()]
        lines += [f"note: {note}" for note in self.notes]
        return [*lines, f"to read it: {self.try_it}"]


def export_trace(dataset: Dataset, to: str, output: Path | Sink) -> Exported:
    """Write the `ok` headline requests of a dataset in the format `to`.

    Raises:
        UsageError: KVT-E001, no such format.
        InputError: KVT-E002 nothing to export; KVT-E003, KVT-E004, KVT-E005 the format needs what
            the dataset does not know.
        OutputError: KVT-E010, the file cannot be written.
    """
    target = _target(to)
    rows = load_rows(dataset)
    _check(dataset, rows, target)
    rows = leave_out(rows, target)
    if rows.requests.is_empty():
        raise _nothing(dataset, rows)
    notes: list[str] = _notes(rows, target)
    lines = _started(target.lines(rows, notes))
    if isinstance(output, Path):
        _write_file(output, lines)
    else:
        put_lines(output, lines)
    size = rows.block_size_tokens
    path = output if isinstance(output, Path) else None
    return Exported(
        target=target.name,
        path=path,
        requests=len(rows.requests),
        block_size_tokens=None if target.name == "vidur" else size,
        left_out=rows.left_out,
        notes=tuple(notes),
        try_it=_call(target, rows, path),
    )


def _call(target: Target, rows: ExportRows, path: Path | None) -> str:
    """How the tool is called with this file."""
    call = target.try_it
    if rows.block_size_tokens is not None:
        call = call.replace("BLOCK", str(rows.block_size_tokens))
    if not rows.has_clock:
        call = call.replace(TIMED_ONLY, "")
    return call if path is None else call.replace("FILE", str(path))


def _target(to: str) -> Target:
    if to in TARGETS:
        return TARGETS[to]
    close = difflib.get_close_matches(to, TARGETS, n=1, cutoff=0.6) or list(TARGETS)
    raise UsageError(
        "KVT-E001",
        f"there is no export format `{to}`",
        hint=f"--to {'|'.join(close)}",
    )


def _check(dataset: Dataset, rows: ExportRows, target: Target) -> None:
    where = Location(str(dataset.directory))
    if "blocks" in target.needs and not rows.block_sizes:
        grades = {s.evidence_grade for s in dataset.manifest.sources if s.role == "headline"}
        raise InputError(
            "KVT-E003",
            f"`{target.name}` needs block ids, and this dataset has none",
            where=where,
            cause=f"its evidence is grade {'/'.join(sorted(grades)) or 'L'}: lengths"
            " and counts, not which blocks a prompt is made of",
            hint="`--to vidur` and `--to csv` write lengths and times; `kvtrace formats` says which"
            " logs carry block ids (grade A)",
        )
    if "blocks" in target.needs and rows.block_size_tokens is None:
        sizes = ", ".join(map(str, rows.block_sizes))
        raise InputError(
            "KVT-E004",
            f"`{target.name}` knows one block size, and this dataset has several: {sizes} tokens",
            where=where,
            hint="ingest the logs of one engine at a time",
        )
    if "clock" in target.needs and not rows.has_clock and not rows.requests.is_empty():
        raise InputError(
            "KVT-E005",
            f"`{target.name}` needs arrival times, and this dataset has none",
            where=where,
            hint="`--to mooncake` and `--to csv` keep the order of requests without times",
        )


def _nothing(dataset: Dataset, rows: ExportRows) -> InputError:
    lost = "; ".join(f"{count:,} {reason}" for reason, count in rows.left_out.items())
    return InputError(
        "KVT-E002",
        "there is no request to export",
        where=Location(str(dataset.directory)),
        cause=f"left out: {lost}" if lost else "the dataset holds no requests",
        hint="`kvtrace query DATASET coverage/fields` shows which columns are known",
    )


def _notes(rows: ExportRows, target: Target) -> list[str]:
    notes = []
    if "blocks" in target.needs and rows.domains > 1:
        notes.append(
            f"{rows.domains:,} groups of requests whose block ids mean different things are in one"
            " file; no block is shared between two groups"
        )
    if not rows.has_clock:
        notes.append("the dataset has no clock: rows are in order, without times")
    return notes


def _started(lines: Iterator[str]) -> Iterator[str]:
    """The same lines; the first is made at once, so that its notes are there."""
    return chain(list(islice(lines, 1)), lines)


def _write_file(path: Path, lines: Iterator[str]) -> None:
    try:
        write_lines(path, lines)
    except OSError as error:
        raise OutputError(
            "KVT-E010",
            "the trace cannot be written",
            where=Location(str(path)),
            cause=error.strerror,
            hint="choose a file that can be written: kvtrace export DATASET --to FORMAT -o FILE",
        ) from error
