"""What prompt counts include, where a record does not tell: other records of its producer do.

One instrumentation counts all its prompts the same way. A call with more cached than prompt tokens,
or with a total that fits only one reading, proves the way for every call of that instrumentation in
the run, in whatever order and file they stand. Without a proof the convention counts, then the
usual reading of the names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import polars as pl

from kvtrace.ingest.columns import FileRows
from kvtrace.ingest.contract import CacheProofs, Producer
from kvtrace.ingest.sources import FileRead
from kvtrace.ingest.usage import ASSUMED_FLAG
from kvtrace.schema.arrays import BoolArray, IntArray
from kvtrace.schema.manifest import Note

MIXED_NOTE: Final = "cache_semantics_mixed"
Verdict = Literal["exclusive", "inclusive", "open", "mixed"]


@dataclass(slots=True)
class _Proofs:
    """The proofs of one producer in all files, and where the first of each kind stands."""

    exclusive: int = 0
    first_exclusive: str = ""
    inclusive: int = 0
    first_inclusive: str = ""

    def add(self, path: str, found: CacheProofs) -> None:
        if found.exclusive:
            self.exclusive += found.exclusive
            self.first_exclusive = self.first_exclusive or f"{path}:{found.exclusive_line}"
        if found.inclusive:
            self.inclusive += found.inclusive
            self.first_inclusive = self.first_inclusive or f"{path}:{found.inclusive_line}"

    def merge(self, other: _Proofs) -> None:
        self.exclusive += other.exclusive
        self.first_exclusive = self.first_exclusive or other.first_exclusive
        self.inclusive += other.inclusive
        self.first_inclusive = self.first_inclusive or other.first_inclusive

    @property
    def verdict(self) -> Verdict:
        if self.exclusive and self.inclusive:
            return "mixed"
        if self.exclusive:
            return "exclusive"
        return "inclusive" if self.inclusive else "open"


@dataclass(slots=True)
class _Told:
    """What was made of the calls of one file."""

    exclusive: int = 0
    inclusive: int = 0
    by_spec: int = 0
    assumed: int = 0
    mixed: int = 0
    proved_by: set[Producer] = field(default_factory=set)
    """The producers whose calls were the proof."""


def settle_cache_semantics(reads: Iterable[FileRead]) -> None:
    """Give the rows that left it open their prompt tokens, and every file a note of the rule."""
    known = list(reads)
    proofs = _all_proofs(known)
    for read in known:
        rows, context = read.rows, read.context
        if rows is None or context is None or not rows.holds_rows:
            continue
        told = _Told()
        _settle_file(rows, proofs, told, block_tokens=context.found_block_size_tokens)
        told.proved_by.update(context.cache_proofs)
        evidence = _merged(told.proved_by, proofs)
        read.entry.notes.extend(_notes(told, evidence, read.entry.path))


def _all_proofs(reads: list[FileRead]) -> dict[Producer, _Proofs]:
    proofs: dict[Producer, _Proofs] = {}
    for read in reads:
        if read.context is None or read.rows is None or not read.rows.holds_rows:
            continue
        for producer, found in read.context.cache_proofs.items():
            proofs.setdefault(producer, _Proofs()).add(read.entry.path, found)
    return proofs


def _witnesses(producer: Producer, proofs: dict[Producer, _Proofs]) -> list[Producer]:
    """Itself, else those of its instrumentation where either does not name a provider."""
    if producer in proofs:
        return [producer]
    return [
        other
        for other in proofs
        if other[:2] == producer[:2] and not (other.provider and producer.provider)
    ]


def _merged(producers: Iterable[Producer], proofs: dict[Producer, _Proofs]) -> _Proofs:
    merged = _Proofs()
    for producer in sorted(producers, key=list(proofs).index):
        merged.merge(proofs[producer])
    return merged


def _settle_file(
    rows: FileRows, proofs: dict[Producer, _Proofs], told: _Told, *, block_tokens: int | None
) -> None:
    left = rows.unsettled
    is_ours = np.isin(left.row, rows.requests["request_key"].to_numpy())
    is_exclusive = np.zeros(len(left.row), dtype=np.bool_)
    is_assumed = np.zeros(len(left.row), dtype=np.bool_)
    for place, producer in enumerate(left.producers):
        witnesses = _witnesses(producer, proofs)
        calls = is_ours & (left.producer == place)
        is_counted, verdict = int(np.count_nonzero(calls)), _merged(witnesses, proofs).verdict
        if verdict == "exclusive":
            told.exclusive += is_counted
            is_exclusive |= calls
        elif verdict == "inclusive":
            told.inclusive += is_counted
        elif verdict == "mixed":
            told.mixed += is_counted
            is_assumed |= calls
        else:
            by_spec = int(np.count_nonzero(calls & left.is_by_spec))
            told.by_spec += by_spec
            told.assumed += is_counted - by_spec
            is_assumed |= calls & ~left.is_by_spec
        if is_counted:
            told.proved_by.update(witnesses)
    if is_ours.any():
        _apply(rows, is_ours, is_exclusive, is_assumed)
        if block_tokens is not None:
            _cut_blocks(rows, left.row[is_ours & ~is_exclusive], block_tokens)


def _apply(
    rows: FileRows, is_ours: BoolArray, is_exclusive: BoolArray, is_assumed: BoolArray
) -> None:
    left = rows.unsettled
    change = pl.DataFrame(
        {
            "request_key": left.row,
            "_more": np.where(is_exclusive, left.left_out_tokens, 0),
            "_assumed": is_assumed,
        }
    ).filter(pl.Series(is_ours))
    names = rows.requests.columns
    rows.requests = (
        rows.requests.join(change, on="request_key", how="left", maintain_order="left")
        .with_columns(
            pl.col("prompt_tokens") + pl.col("_more").fill_null(0),
            pl.when("_assumed")
            .then(pl.concat_list("flags", pl.lit(ASSUMED_FLAG)))
            .otherwise("flags")
            .alias("flags"),
        )
        .select(names)
        .set_sorted("request_key")
    )


def _cut_blocks(rows: FileRows, inclusive: IntArray, block_tokens: int) -> None:
    """Their keys were made for the longer prompt."""
    if not len(rows.block_keys):
        return
    short = rows.requests.filter(pl.col("request_key").is_in(pl.Series(inclusive).implode()))
    lengths = short.select("request_key", "prompt_tokens").drop_nulls().iter_rows()
    rows.cut_blocks({key: -(-prompt // block_tokens) for key, prompt in lengths})


def _notes(told: _Told, evidence: _Proofs, path: str) -> list[Note]:
    """What decided the prompt counts of a file, as notes."""
    notes: list[Note] = []
    settled = told.exclusive + told.inclusive
    if told.proved_by and (settled or not told.mixed):
        message = (
            "What prompt counts include is proved by calls of the same instrumentation:"
            f" {_evidence(evidence)}. {_settled(told)}"
        )
        notes.append(Note(code="cache_semantics_proved", message=message.strip(), path=path))
    if told.mixed:
        message = (
            "Calls of one instrumentation prove both readings of the prompt count"
            f" ({_evidence(evidence)}): {told.mixed:,} others tell nothing and are read as"
            " including the cached tokens. Where that is wrong, their prompts are too short."
        )
        notes.append(_warning(MIXED_NOTE, message, path))
    if told.by_spec:
        message = (
            "Calls whose numbers leave open whether the prompt count includes the cached tokens:"
            f" {told.by_spec:,}. It is read as including them, as the GenAI conventions define the"
            " attributes that they use; no call of the same instrumentation says otherwise."
        )
        notes.append(Note(code="cache_semantics_by_spec", message=message, path=path))
    if told.assumed:
        message = (
            "Spans with cached tokens do not settle whether input_tokens include them, and no span"
            f" of the same instrumentation does: {told.assumed:,}. They are taken as included, as"
            " the GenAI conventions demand since January 2026. Older instrumentations may leave"
            " them out: prompts are then too short."
        )
        notes.append(_warning(ASSUMED_FLAG, message, path))
    return notes


def _warning(code: str, message: str, path: str) -> Note:
    return Note(code=code, message=message, path=path, severity="warning")


def _settled(told: _Told) -> str:
    ways: list[str] = []
    if told.exclusive:
        ways.append(f"{told.exclusive:,} as leaving the cached tokens out")
    if told.inclusive:
        ways.append(f"{told.inclusive:,} as including them")
    return f"They settle {' and '.join(ways)}." if ways else ""


def _evidence(found: _Proofs) -> str:
    parts: list[str] = []
    if found.exclusive:
        parts.append(
            f"{found.exclusive:,} leave the cached tokens out (more cached than input tokens, or a"
            f" total that fits only so; first {found.first_exclusive})"
        )
    if found.inclusive:
        parts.append(
            f"{found.inclusive:,} include them (by the total, or by the engine's own count; first"
            f" {found.first_inclusive})"
        )
    return "; ".join(parts)
