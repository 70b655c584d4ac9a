"""The data part of the record: totals, evidence grade, and what the data can and cannot carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import Data, Validity
from kvtrace.audit.thresholds import MIN_REQUESTS, MIN_SPAN
from kvtrace.audit.words import GRADE_SAYS, counted
from kvtrace.schema.manifest import FileEntry, Grade, Manifest, Note, SourceEntry
from kvtrace.units import NS_PER_S, format_seconds

_TAKEN_CLOCK: Final = "clock_from_joined_source"
"""Note of a source whose arrivals a joined one dates."""
_BEST_FIRST: Final = "ABLC"
"""Grades with rows of requests come before aggregates."""


@dataclass(frozen=True, slots=True)
class Window:
    """The data as validity judges it."""

    manifest: Manifest
    grade: Grade
    span_s: float | None
    unconfirmed: Sequence[str]

    @property
    def headline_files(self) -> list[FileEntry]:
        """Files whose rows feed the totals."""
        headline = [source for source in self.manifest.sources if source.role == "headline"]
        return _files_of(headline, self.manifest.files)


def dating_files(sources: Sequence[SourceEntry], files: Sequence[FileEntry]) -> list[FileEntry]:
    """Files whose clock dates the arrivals of the totals.

    The headline's own, or those of the joined sources whose clock it took over.
    """
    headline = [source for source in sources if source.role == "headline"]
    own = _files_of(headline, files)
    if not any(taken_clock(source, files) for source in headline):
        return own
    clocks = {source.clock for source in headline}
    joined = _files_of([source for source in sources if source.role == "joined"], files)
    return [entry for entry in joined if entry.clock in clocks] or own


def taken_clock(source: SourceEntry, files: Sequence[FileEntry]) -> Note | None:
    """Which joined source dates this one's arrivals; null where its own clock does."""
    note = next((note for note in source.notes if note.code == _TAKEN_CLOCK), None)
    is_other = all(entry.clock != source.clock for entry in _files_of([source], files))
    return note if is_other else None


def _files_of(sources: Sequence[SourceEntry], files: Sequence[FileEntry]) -> list[FileEntry]:
    wanted = {source.source_id for source in sources}
    return [entry for entry in files if wanted.intersection(entry.source_ids)]


def grade_of(sources: Sequence[SourceEntry]) -> Grade:
    """The grade of the source used for reuse: the best of headline and joined; C without any."""
    used = [source.evidence_grade for source in sources if source.role != "beside"]
    grades = used or [source.evidence_grade for source in sources]
    return min(grades, key=_BEST_FIRST.index, default="C")


def build_data(manifest: Manifest, *, span_s: float | None, unconfirmed: Sequence[str]) -> Data:
    """Totals, files, sources and validity."""
    totals = manifest.totals
    grade = grade_of(manifest.sources)
    window = Window(manifest=manifest, grade=grade, span_s=span_s, unconfirmed=unconfirmed)
    return Data(
        requests=totals.requests,
        requests_by_status=totals.requests_by_status,
        prompt_tokens=totals.prompt_tokens,
        output_tokens=totals.output_tokens,
        cached_tokens=totals.cached_tokens,
        cached_known_requests=totals.cached_known_requests,
        cache_write_tokens=totals.cache_write_tokens,
        cached_tiers=totals.cached_tiers,
        block_refs=totals.block_refs,
        distinct_blocks=totals.distinct_blocks,
        block_size_tokens=totals.block_size_tokens,
        samples=totals.samples,
        transfers=totals.transfers,
        block_events=totals.block_events,
        rejected=totals.rejected,
        notes=totals.notes,
        evidence_grade=grade,
        validity=[entry for check in _CHECKS for entry in check(window)],
        files=manifest.files,
        sources=manifest.sources,
        span_s=span_s,
        dataset_digest=manifest.digest,
    )


def _evidence(window: Window) -> Iterator[Validity]:
    yield Validity(
        code="evidence_grade",
        severity="info" if window.grade == "A" else "warning",
        message=f"Evidence grade {window.grade}: {GRADE_SAYS[window.grade]}",
    )


def _clock(window: Window) -> Iterator[Validity]:
    manifest = window.manifest
    seen = set()
    for source in manifest.sources:
        taken = taken_clock(source, manifest.files) if source.role == "headline" else None
        if taken is not None:
            seen |= {(e.clock, e.clock_resolution_ns) for e in _files_of([source], manifest.files)}
            yield Validity(
                code="clock", severity="info", message=f"Clock: {source.clock}: {taken.message}"
            )
    for entry in window.headline_files:
        if entry.clock is None or (entry.clock, entry.clock_resolution_ns) in seen:
            continue
        seen.add((entry.clock, entry.clock_resolution_ns))
        ordered = entry.clock == "order"
        step = entry.clock_resolution_ns
        resolution = "" if step is None else f", resolution {format_seconds(step / NS_PER_S)}"
        reason = "" if entry.clock_reason is None else f" ({entry.clock_reason})"
        yield Validity(
            code="clock",
            severity="warning" if ordered or entry.clock == "naive" else "info",
            message="The source has an order but no clock: load and queues are unknown"
            if ordered
            else f"Clock: {entry.clock}{resolution}{reason}",
        )


def _span(window: Window) -> Iterator[Validity]:
    if window.span_s is None:
        message = "The time from first to last arrival is unknown"
    elif window.span_s < MIN_SPAN.value:
        message = (
            f"The window is {format_seconds(window.span_s)}, shorter than "
            f"{format_seconds(MIN_SPAN.value)}: reuse between distant requests is not seen"
        )
    else:
        yield Validity(
            code="span",
            severity="info",
            message=f"The window is {format_seconds(window.span_s)}",
        )
        return
    yield Validity(code="span", severity="warning", message=message)


def _sample_size(window: Window) -> Iterator[Validity]:
    requests = window.manifest.totals.requests
    enough = requests >= MIN_REQUESTS.value
    tail = "" if enough else f": below {MIN_REQUESTS.value:,.0f} a P99 is not given"
    yield Validity(
        code="sample_size",
        severity="info" if enough else "warning",
        message=f"{counted(requests, 'request')}{tail}",
    )


def _rejected(window: Window) -> Iterator[Validity]:
    rejected = window.manifest.totals.rejected
    rows = sum(entry.rows_in for entry in window.manifest.files)
    if rejected:
        yield Validity(
            code="rejected_rows",
            severity="warning",
            message=f"{rejected:,} of {counted(rows, 'row')} {'was' if rejected == 1 else 'were'} "
            "unusable: counted, not used",
        )


def _block_size(window: Window) -> Iterator[Validity]:
    for reason in sorted({domain.block_size_reason for domain in window.manifest.domains}):
        sizes = sorted(
            {d.block_size_tokens for d in window.manifest.domains if d.block_size_reason == reason}
        )
        yield Validity(
            code="block_size",
            severity="info",
            message=f"Block size {', '.join(map(str, sizes))} tokens: {reason}",
        )
    if len(window.manifest.domains) > 1:
        yield Validity(
            code="cache_domains",
            severity="warning",
            message=f"{len(window.manifest.domains)} cache domains: block ids of one do not match "
            "those of another, so sharing between them is not seen",
        )


def _beside(window: Window) -> Iterator[Validity]:
    beside = [source for source in window.manifest.sources if source.role == "beside"]
    if beside:
        names = ", ".join(sorted({source.format for source in beside}))
        yield Validity(
            code="sources_beside",
            severity="info",
            message=f"{counted(len(beside), 'source')} may describe the same requests ({names}), "
            "and stands beside the totals: not added to them"
            if len(beside) == 1
            else f"{counted(len(beside), 'source')} may describe the same requests ({names}); they "
            "stand beside the totals and are not added to them",
        )


def _statuses(window: Window) -> Iterator[Validity]:
    by_status = window.manifest.totals.requests_by_status
    other = {name: count for name, count in sorted(by_status.items()) if name != "ok" and count}
    if other:
        named = ", ".join(f"{count:,} {name}" for name, count in other.items())
        yield Validity(
            code="statuses",
            severity="info",
            message=f"Ratios and replay use status `ok` only; left out: {named}",
        )


def _unconfirmed(window: Window) -> Iterator[Validity]:
    if window.unconfirmed:
        yield Validity(
            code="assumptions_unconfirmed",
            severity="warning",
            message=f"Estimates that nobody confirmed: {', '.join(window.unconfirmed)}",
        )


_CHECKS: Final[tuple[Callable[[Window], Iterator[Validity]], ...]] = (
    _evidence,
    _clock,
    _span,
    _sample_size,
    _rejected,
    _block_size,
    _beside,
    _statuses,
    _unconfirmed,
)
