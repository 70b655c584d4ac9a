"""Which files speak about the same requests, and which source feeds the headline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from kvtrace.ingest.columns import FILE_KEY_STEP, FileRows
from kvtrace.ingest.contract import Format, ReadContext
from kvtrace.ingest.joining.pairs import REUSED_APART_NS
from kvtrace.ingest.joining.twins import seats
from kvtrace.ingest.modelnames import NameBook
from kvtrace.ingest.request_columns import COPY_DIGEST
from kvtrace.schema.arrays import IntArray
from kvtrace.schema.manifest import Clock, FileEntry, Grade, Note, SourceEntry, SourceRole
from kvtrace.schema.metrics import HIT_METRICS

HEADLINE_ORDER: Final[dict[Grade, int]] = {"A": 0, "B": 1, "L": 2, "C": 3}
"""Order of grades when choosing the source that feeds totals, and the order of joining."""
ABSOLUTE: Final[frozenset[Clock]] = frozenset({"utc", "naive"})
COUNTED: Final[frozenset[Clock]] = frozenset({"relative", "monotonic"})
"""Clocks that count from an instant that nobody knows."""
_GRID_SHARE: Final = 0.99
_GRID_SLACK: Final = 0.02
_MIN_GRID_GAPS: Final = 8
_MAX_VERSIONS: Final = 4


@dataclass(slots=True)
class FileRead:
    """One file as it was read; `rows` is None where nothing was understood."""

    entry: FileEntry
    format: Format | None = None
    context: ReadContext | None = None
    rows: FileRows | None = None
    confidence: float = 0.0
    """How sure the recognition was, 0..1; below its threshold nothing was read."""
    log_id: int = -1
    """Number of the first file of the rotated log that this is a piece of; else its own."""

    def __post_init__(self) -> None:
        self.log_id = self.entry.file_id


@dataclass(slots=True)
class Source:
    """Files of one source and its request rows, helpers included."""

    source_id: int
    format: Format
    files: list[FileRead]
    requests: pl.DataFrame
    grade: Grade
    clock: Clock
    clock_resolution_ns: int | None
    own_requests: int = 0
    """Requests that it holds, those that were joined to the headline included."""
    role: SourceRole = "beside"
    twin_group: int | None = None
    """The same of sources of one format that log the same requests; None for all others."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """(code, message)"""
    flag_notes: list[Note] = field(default_factory=list)
    """What was odd about its requests."""

    @property
    def name(self) -> str:
        """How notes name it: its format and first file."""
        more = len(self.files) - 1
        first = self.files[0].entry.path
        return f"{self.format.name} ({first}{f' and {more} more' if more else ''})"


def settle_clocks(reads: list[FileRead]) -> None:
    """Count relative times from the first one of each log and find the clocks' resolutions."""
    logs: dict[int, list[FileRead]] = {}
    for read in reads:
        if read.context is not None and read.context.clock in COUNTED:
            logs.setdefault(read.log_id, []).append(read)
    for log in logs.values():
        _count_from_first(log)
    _forget_clocks_of_conversations(reads)
    for read in reads:
        _settle_resolution(read)


def _forget_clocks_of_conversations(reads: list[FileRead]) -> None:
    """Conversations of which each has its own zero add up, but nobody knows when they met."""
    by_format: dict[str, list[FileRead]] = {}
    for read in reads:
        if read.format is not None and read.format.holds_one_conversation:
            by_format.setdefault(read.format.name, []).append(read)
    for group in by_format.values():
        for read in group if len(group) > 1 else ():
            if read.context is None or read.rows is None or read.context.clock in ABSOLUTE:
                continue
            read.context.clock, read.context.clock_resolution_ns = "order", None
            read.context.clock_reason = "each conversation counts from its own start"
            read.rows.requests = read.rows.requests.with_columns(
                pl.lit(None, dtype=pl.Int64).alias("arrived_at_ns"), pl.lit("order").alias("clock")
            )
            message = (
                f"{len(group)} conversations count from their own starts: their requests add up, "
                "but when they arrived beside one another is unknown"
            )
            read.entry.notes.append(Note(code="no_common_clock", message=message))


def _settle_resolution(read: FileRead) -> None:
    context, rows = read.context, read.rows
    if context is None or rows is None:
        return
    resolution = context.clock_resolution_ns
    if resolution is None:
        resolution = clock_resolution_ns(_known(rows.requests, "arrived_at_ns"))
        context.clock_resolution_ns = resolution
    if read.entry.clock is None:  # the first source of a log of several programs speaks for it
        read.entry.clock = context.clock
        read.entry.clock_resolution_ns = resolution
        read.entry.clock_reason = context.clock_reason


def _known(frame: pl.DataFrame, column: str) -> IntArray:
    return frame[column].drop_nulls().to_numpy()


def time_range_ns(read: FileRead) -> tuple[int, int] | None:
    """First and last time of a file's rows; None if no time is known."""
    rows = read.rows
    if rows is None:
        return None
    columns = (
        _known(rows.requests, "arrived_at_ns"),
        _known(rows.samples, "observed_at_ns"),
        _known(rows.transfers, "started_at_ns"),
        _known(rows.block_events, "observed_at_ns"),
    )
    known = [times for times in columns if len(times)]
    if not known:
        return None
    return min(int(times.min()) for times in known), max(int(times.max()) for times in known)


def _count_from_first(log: list[FileRead]) -> None:
    spans = [span for read in log if (span := time_range_ns(read)) is not None]
    first_ns = min((first for first, _last in spans), default=0)
    for read in log:
        if first_ns and read.rows is not None:
            _count_from(read.rows, first_ns)


def _count_from(rows: FileRows, first_ns: int) -> None:
    first = pl.lit(first_ns, dtype=pl.Int64)
    rows.requests = rows.requests.with_columns(pl.col("arrived_at_ns") - first)
    rows.samples = rows.samples.with_columns(pl.col("observed_at_ns") - first)
    rows.transfers = rows.transfers.with_columns(pl.col("started_at_ns") - first)
    rows.block_events = rows.block_events.with_columns(pl.col("observed_at_ns") - first)


def clock_resolution_ns(arrivals: IntArray) -> int | None:
    """The step of a clock in ns, or None if fewer than two distinct instants are known.

    The median gap between distinct instants if nearly all gaps are multiples of it (a grid with a
    little jitter, as the 3 s steps of the Mooncake traces), else the greatest common divisor.
    """
    gaps = np.diff(np.unique(arrivals))
    if len(gaps) == 0:
        return None
    if len(gaps) >= _MIN_GRID_GAPS:
        step = int(np.median(gaps))
        off_grid = np.abs(gaps - np.maximum(np.rint(gaps / step), 1) * step)
        if np.mean(off_grid <= _GRID_SLACK * step) >= _GRID_SHARE:
            return int(round(step, 3 - len(str(step))))
    return int(np.gcd.reduce(gaps))


def assign_sources(reads: list[FileRead]) -> list[Source]:
    """Files of one format and layer on an absolute clock are one source; other logs are their own.

    Layers write of the same requests, so that they are joined and never added; so do files that
    share most of their requests (a prefill and a decode instance), each of which is a source then.
    """
    groups: dict[tuple[str, str | None, int], list[FileRead]] = {}
    for read in reads:
        if (
            read.rows is None
            or read.format is None
            or read.context is None
            or not read.rows.holds_rows
        ):
            continue
        is_shared = read.context.clock in ABSOLUTE or read.format.holds_one_conversation
        own = -1 if is_shared else read.log_id
        groups.setdefault((read.format.name, read.context.layer, own), []).append(read)
    sources: list[Source] = []
    for group in sorted(groups.values(), key=lambda group: group[0].entry.file_id):
        parts = _without_twins(group)
        twin_group = len(sources) if len(parts) > 1 else None
        for part in parts:
            source = _source(len(sources), part)
            source.twin_group = twin_group
            sources.append(source)
    return sources


def _without_twins(group: list[FileRead]) -> list[list[FileRead]]:
    """The files of a group apart where they log the same requests, those that say most first."""
    has_dates = all(read.context is not None and read.context.clock in ABSOLUTE for read in group)
    frames = [read.rows.requests for read in group if read.rows is not None]
    if len(group) < 2 or not has_dates:
        return [group]
    places = seats(frames)
    parts: list[list[FileRead]] = [[] for _ in range(max(places) + 1)]
    for read, place in zip(group, places, strict=True):
        parts[place].append(read)
    return parts


def _source(source_id: int, files: list[FileRead]) -> Source:
    grades: list[Grade] = []
    for read in files:
        grade, entry = grade_of(read), read.entry
        entry.source_ids.append(source_id)
        held: list[Grade] = [grade]
        if entry.evidence_grade is not None:
            held.append(entry.evidence_grade)
        best: Grade = min(held, key=HEADLINE_ORDER.__getitem__)
        entry.evidence_grade = best
        grades.append(grade)
    clocks: list[Clock] = [read.context.clock for read in files if read.context is not None]
    steps = [read.context.clock_resolution_ns for read in files if read.context is not None]
    known_steps = [step for step in steps if step is not None]
    format_ = files[0].format
    if format_ is None:
        raise RuntimeError("a source needs a format")
    requests = _requests(files, source_id)
    return Source(
        source_id=source_id,
        format=format_,
        files=files,
        requests=requests,
        own_requests=len(requests),
        grade=min(grades, key=HEADLINE_ORDER.__getitem__),
        clock="naive" if "naive" in clocks else clocks[0],
        clock_resolution_ns=int(np.gcd.reduce(known_steps)) if known_steps else None,
    )


def _requests(files: list[FileRead], source_id: int) -> pl.DataFrame:
    frames = [read.rows.requests for read in files if read.rows is not None]
    return pl.concat(frames).with_columns(
        pl.lit(source_id, dtype=pl.Int32).alias("source_id"),
    )


def grade_of(read: FileRead) -> Grade:
    """What the rows of a file prove, or less if its reader says so."""
    rows, context = read.rows, read.context
    if rows is None or context is None:
        return "L"
    stated = context.evidence_grade
    if rows.requests.is_empty():
        return "C"
    if len(rows.block_counts) and context.found_block_size_tokens is not None and stated != "L":
        return "A"
    if rows.requests["cached_tokens"].null_count() < len(rows.requests):
        return "B"
    return "C" if stated != "L" and rows.samples["metric"].is_in(HIT_METRICS).any() else "L"


def choose_headline(sources: list[Source]) -> Source | None:
    """The source that feeds totals: with requests before without, then grade, then size."""
    if not sources:
        return None
    chosen = min(
        sources,
        key=lambda source: (
            source.requests.is_empty(),
            HEADLINE_ORDER[source.grade],
            -len(source.requests),
            source.source_id,
        ),
    )
    chosen.role = "headline"
    return chosen


def drop_exact_copies(source: Source) -> None:
    """Drop rows whose id and bytes an earlier row of the source has; flag reused ids.

    A copy moves from used to ignored in the counts of its file.
    """
    frame = source.requests
    if frame["request_id_key"].null_count() == len(frame):
        return
    identity = ("request_id_key", COPY_DIGEST)
    has_id = pl.col("request_id_key").is_not_null()
    has_both = has_id & pl.col(COPY_DIGEST).is_not_null()
    if not frame["request_key"].is_sorted():
        frame = frame.sort("request_key")
    source.requests, source.own_requests = frame, len(frame)
    if not frame.select((has_id & ~pl.col("request_id_key").is_first_distinct()).any()).item():
        return  # no id twice, as in most logs
    is_copy = has_both & ~pl.struct(identity).is_first_distinct()
    copies = frame.select("request_key", is_copy.alias("_is_copy")).filter("_is_copy")
    if not copies.is_empty():  # else the wide frame would be copied for nothing
        _count_copies(source, copies)
        frame = frame.filter(~is_copy)
    frame = frame.with_columns(
        (has_id & ~pl.col("request_id_key").is_first_distinct()).alias("_is_reused")
    )
    reused = int(frame["_is_reused"].sum())
    twice = _seen_twice(frame)
    if twice:
        message = (
            f"{twice} requests have the id of a request that another file has within ten minutes: "
            "two instances (as prefill and decode, or a proxy and what is behind it) may have "
            "logged the same ones, which then count twice; give only one of the files"
        )
        source.notes.append(("requests_logged_twice", message))
    if reused:
        frame = frame.with_columns(
            pl.when("_is_reused")
            .then(pl.concat_list("flags", pl.lit("id_conflict")))
            .otherwise("flags")
            .alias("flags")
        )
        message = f"{reused} rows reuse the request id of an earlier row with other content"
        source.notes.append(("id_conflicts", message))
    source.requests = frame.drop("_is_reused")
    source.own_requests = len(source.requests)


def _seen_twice(frame: pl.DataFrame) -> int:
    """Rows whose id came first in another file, at nearly the same time."""
    named = frame.select("request_id_key", "request_key", "arrived_at_ns").drop_nulls(
        "request_id_key"
    )
    file, at = pl.col("request_key") // FILE_KEY_STEP, pl.col("arrived_at_ns")
    is_elsewhere = file != file.first().over("request_id_key")
    is_near = (at - at.first().over("request_id_key")).abs() <= REUSED_APART_NS
    return int(named.select((is_elsewhere & is_near).sum()).item())


def _count_copies(source: Source, copies: pl.DataFrame) -> None:
    files = (copies["request_key"] // FILE_KEY_STEP).to_list()
    for read in source.files:
        count = files.count(read.entry.file_id)
        if count:
            read.entry.used -= count
            read.entry.ignored += count
            by_reason = read.entry.ignored_by_reason
            by_reason["exact_copy"] = by_reason.get("exact_copy", 0) + count
    message = f"{len(copies)} exact copies of earlier records were dropped"
    source.notes.append(("exact_copies", message))


def _all_of(texts: Iterable[str | None]) -> str | None:
    """What the files of a source say, each thing once; null if none says anything."""
    distinct = list(dict.fromkeys(text for text in texts if text is not None))
    more = len(distinct) - _MAX_VERSIONS
    shown = distinct[:_MAX_VERSIONS] + ([f"and {more} more"] if more > 0 else [])
    return "; ".join(shown) or None


def source_entry(source: Source, names: NameBook) -> SourceEntry:
    """The manifest entry of a source; `names` says how names are shown."""
    contexts = [read.context for read in source.files if read.context is not None]
    facts: dict[str, str | int | float] = {}
    for context in reversed(contexts):
        facts.update(context.engine_facts)
    engines = [context for context in contexts if context.engine is not None]
    versions = [context for context in contexts if context.engine_version is not None]
    rows = [read.rows for read in source.files if read.rows is not None]
    return SourceEntry(
        source_id=source.source_id,
        format=source.format.name,
        evidence_grade=source.grade,
        role=source.role,
        files=[read.entry.file_id for read in source.files],
        requests=source.own_requests,
        samples=sum(part.observations for part in rows),
        transfers=sum(len(part.transfers) for part in rows),
        clock=source.clock,
        engine=engines[0].engine if engines else None,
        engine_version=_all_of(names.version(context.engine_version) for context in versions),
        engine_version_reason=_all_of(context.engine_version_reason for context in versions),
        engine_facts=names.shown_facts(facts),
        notes=[
            *(Note(code=code, message=text) for code, text in source.notes),
            *source.flag_notes,
        ],
    )
