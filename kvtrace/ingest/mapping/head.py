"""The start of a file as records: what its fields are called and what stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from kvtrace.ingest.contract import Framing
from kvtrace.ingest.files.frame import FrameCounts, frame
from kvtrace.ingest.mapping.names import close_names, flattened, is_name, spelled
from kvtrace.ingest.mapping.spec import FieldRef, SourceSpec
from kvtrace.ingest.mapping.values import Keys, opened, resolve, split_row
from kvtrace.ingest.sniff import build_head, is_spread_json
from kvtrace.ingest.values.cells import BadCellError

DELIMITERS: Final = (",", ";", "\t", "|")
_HEAD_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class FileHead:
    """The start of one file as records."""

    framing: Framing
    delimiter: str
    header: tuple[str, ...]
    """Of CSV."""
    examples: tuple[Mapping[str, object], ...] = field(repr=False)
    """JSON objects, or CSV rows by column."""
    list_keys: Keys | None = None
    """Where each record holds the list of its requests."""

    def meant(self, said: str) -> str:
        """That the name is there, or which ones are spelled nearly like it; else nothing."""
        header: list[Keys] = [(one,) for one in self.header if is_name(one)]
        known = header or list(flattened(self.examples))
        if any(spelled(keys) == said for keys in known):
            return " (it is there, and empty)"
        close = close_names(said, known)
        return f" (did you mean {' or '.join(f'`{one}`' for one in close)}?)" if close else ""


def look_at(data: bytes, name: str, source: SourceSpec | None = None) -> FileHead | None:
    """The records at the start of a file; None if they are neither JSON objects nor CSV."""
    said = SourceSpec() if source is None else source
    head = build_head(data, name)
    if said.framing != "csv" and not said.columns and said.delimiter is None and head.json_objects:
        framing: Framing = "json" if said.framing == "json" or is_spread_json(data) else "lines"
        whole = FileHead(framing, ",", (), head.json_objects)
        return whole if said.records is None else _opened(whole, said.records)
    if said.framing in ("lines", "json") or not head.lines:
        return None
    delimiter = said.delimiter or _delimiter(head.lines)
    if delimiter is None:
        return None
    rows = _rows(data, head.lines, delimiter)
    if not rows:
        return None
    header = said.columns or rows[0]
    if said.columns and rows[0] != said.columns:
        rows.insert(0, said.columns)
    examples = tuple(
        {key: cell for key, cell in zip(header, row, strict=True) if cell}
        for row in rows[1:]
        if len(row) == len(header)
    )
    framing = "csv" if delimiter == "," else "lines"
    return FileHead(framing, delimiter, header, examples)


def _rows(data: bytes, lines: Sequence[str], delimiter: str) -> list[tuple[str, ...]]:
    """The cells of the first rows; a row that the end of the head cuts is left out."""
    if delimiter == ",":
        records = frame((data.removeprefix(b"\xef\xbb\xbf"),), "csv", FrameCounts())
        texts = [record.data for record in islice(records, _HEAD_ROWS + 1)]
    else:
        texts = [line.encode() for line in lines[: _HEAD_ROWS + 1]]
    rows = []
    for text in texts:
        try:
            rows.append(tuple(split_row(text, delimiter)))
        except BadCellError:
            continue
    return rows


def _opened(head: FileHead, records: FieldRef) -> FileHead:
    """The requests inside the lists of the records; a cut document gave its elements already."""
    keys, is_there = resolve(records, head.examples)
    if not is_there:
        return replace(head, list_keys=keys)
    inner: list[Mapping[str, object]] = []
    for example in head.examples:
        value: object = example
        for key in keys:
            value = opened(value).get(key)
        inner += (item for item in opened(value).values() if isinstance(item, dict))
    return replace(head, examples=tuple(inner[:_HEAD_ROWS]), list_keys=keys)


def _delimiter(lines: Sequence[str]) -> str | None:
    """What separates the cells of the first lines: the one that stands in all of them alike."""
    first = lines[0]
    counts = {one: first.count(one) for one in DELIMITERS if one in first}
    steady = [one for one in counts if all(one in line for line in lines[1:5])]
    return max(steady, key=lambda one: counts[one], default=None)


@dataclass(frozen=True, slots=True)
class Fit:
    """A file and the source of the mapping that reads it."""

    source: SourceSpec
    head: FileHead
    paths: tuple[Keys, ...]
    """For each field, where it stands in this file."""
    missing: tuple[str, ...]
    """Fields that no record at the start has."""


def fit(source: SourceSpec, head: FileHead) -> Fit:
    """How the fields of a source lie in a file."""
    examples: Sequence[Mapping[str, object]] = head.examples
    if head.header:  # an empty column is a column all the same
        examples = (*examples, dict.fromkeys(head.header, ""))
    paths, missing = [], []
    for ref in source.refs():
        keys, is_there = resolve(ref, examples)
        paths.append(keys)
        if not is_there:
            missing.append(ref.said)
    return Fit(source, head, tuple(paths), tuple(missing))
