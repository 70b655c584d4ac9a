"""What a mapping file says, checked: fields, units and clock of logs that no format knows."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, Literal

Unit = Literal["s", "ms", "us", "ns"]
TimeUnit = Literal["s", "ms", "us", "ns", "iso", "auto"]
ClockKind = Literal["auto", "utc", "relative", "monotonic"]
FramingChoice = Literal["auto", "lines", "csv", "json"]
Tail = Literal["auto", "counted", "dropped", "none"]
Scope = Literal["auto", "file", "session", "global"]
TtftFrom = Literal["arrival", "scheduled", "client"]

POWERS: Final[dict[str, int]] = {"s": 0, "ms": -3, "us": -6, "ns": -9}
"""Power of ten from a unit to seconds."""
FORMAT_NAME: Final = "mapping"
UNIT_WORDS: Final = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
COMPRESSED_SUFFIXES: Final = (".gz", ".zst", ".bz2", ".xz")


@dataclass(frozen=True, slots=True)
class FieldRef:
    """Where a value stands in a record."""

    said: str
    """As the mapping writes it: for messages."""
    keys: tuple[str, ...]
    is_literal: bool = False
    """The keys are the keys of the record, points and all; else a point may also be in a key."""


@dataclass(frozen=True, slots=True)
class InstantSpec:
    """A field that is an instant."""

    ref: FieldRef
    unit: TimeUnit = "auto"


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """The field that dates a request."""

    ref: FieldRef
    unit: TimeUnit = "auto"
    zone: str | None = None
    """IANA zone of dates without one."""
    is_end: bool = False
    """The time is that of the end: the arrival is it minus the duration."""
    clock: ClockKind = "auto"


@dataclass(frozen=True, slots=True)
class DurationSpec:
    """A field that is a duration."""

    ref: FieldRef
    power: int | None
    """Of ten, from the unit to seconds; None: the text has its own unit (`350ms`)."""


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """The number of a turn in its session."""

    ref: FieldRef
    first: int = 0
    """What the first turn of a session is numbered."""


@dataclass(frozen=True, slots=True)
class StatusSpec:
    """How a request ended; texts are in lower case."""

    ref: FieldRef
    ok: frozenset[str] = frozenset()
    error: frozenset[str] = frozenset()
    cancelled: frozenset[str] = frozenset()
    gateway_cache_hit: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BlocksSpec:
    """The hashes or ids of a prompt's blocks."""

    ref: FieldRef
    block_tokens: int | None = None
    is_chained: bool = True
    """An id names the prefix that ends in its block; else only what is in the block."""
    scope: Scope = "auto"
    """Where equal ids mean equal blocks; auto: everywhere if they are hashes, else in one file."""
    tail: Tail = "auto"


@dataclass(frozen=True, slots=True)
class TokensSpec:
    """The token ids of a prompt."""

    ref: FieldRef
    block_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One kind of file and how to read it."""

    name: str | None = None
    """Tables of one name read one source; others are sources of their own."""
    match: str | None = None
    framing: FramingChoice = "auto"
    delimiter: str | None = None
    columns: tuple[str, ...] = ()
    """Of a CSV file without a header."""
    records: FieldRef | None = None
    """The list of requests inside a document; None: a record is a request."""
    absent: frozenset[str] = frozenset()
    """Texts that mean: unknown."""
    where: tuple[tuple[FieldRef, frozenset[str]], ...] = ()
    is_benchmark: bool = False
    time: TimeSpec | None = None
    texts: dict[str, FieldRef] = field(default_factory=dict)
    """Request column → field."""
    counts: dict[str, FieldRef] = field(default_factory=dict)
    """Request column, `total_tokens` or `reasoning_tokens` → field."""
    durations: dict[str, DurationSpec] = field(default_factory=dict)
    """queue, prefill, ttft, tpot, e2e → field."""
    ttft_from: TtftFrom = "arrival"
    first_token_at: InstantSpec | None = None
    finished_at: InstantSpec | None = None
    turn: TurnSpec | None = None
    status: StatusSpec | None = None
    gateway_cache_hit: FieldRef | None = None
    failed: FieldRef | None = None
    usage: FieldRef | None = None
    block_hashes: BlocksSpec | None = None
    token_ids: TokensSpec | None = None
    prompt: FieldRef | None = None
    prompt_includes_cached: bool | None = None
    output_includes_reasoning: bool = True

    def refs(self) -> Iterator[FieldRef]:
        """Every field that is read, each once, in a fixed order."""
        seen: dict[FieldRef, None] = {}
        for ref in self.all_refs():
            seen.setdefault(ref)
        yield from seen

    def all_refs(self) -> Iterator[FieldRef]:
        """Every field as often as it is named."""
        singles = (
            self.time,
            self.first_token_at,
            self.finished_at,
            self.turn,
            self.status,
            self.block_hashes,
            self.token_ids,
        )
        yield from (spec.ref for spec in singles if spec is not None)
        yield from self.texts.values()
        yield from self.counts.values()
        yield from (spec.ref for spec in self.durations.values())
        plain = (self.gateway_cache_hit, self.failed, self.usage, self.prompt)
        yield from (ref for ref in plain if ref is not None)
        yield from (ref for ref, _values in self.where)

    def matches(self, name: str) -> bool:
        """Whether the glob means a file of this name; a compression suffix need not be in it."""
        if self.match is None:
            return True
        names = {name, PurePath(name).name}
        for suffix in COMPRESSED_SUFFIXES:
            names |= {one.removesuffix(suffix) for one in names}
        return any(fnmatch.fnmatchcase(one, self.match) for one in sorted(names))


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping file: what it says and where it was read."""

    path: str
    digest: str
    """Of what it says; comments and spaces do not count."""
    sources: tuple[SourceSpec, ...]

    def format_name(self, source: SourceSpec) -> str:
        """The format of a source's files.

        Sources may speak of the same requests, so each has its own unless they share a name.
        """
        if len(self.sources) == 1 and source.name is None:
            return FORMAT_NAME
        return f"{FORMAT_NAME}_{source.name or self.sources.index(source) + 1}"
