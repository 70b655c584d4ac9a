"""Formats that are dialects of text logs: how they are made, and how lines vote for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kvtrace.ingest.contract import (
    ExpressKind,
    Format,
    Guess,
    Head,
    LineTime,
    LogContext,
    LogDialect,
    LogReader,
    PrefixKind,
    ReadContext,
    Record,
    Row,
    Tally,
)
from kvtrace.ingest.textlog.router import LogRouter, read_alone
from kvtrace.schema.manifest import Grade

_MAX_LINES = 2_000
_MAX_CHARS = 4_000


def log_format(
    name: str,
    *,
    title: str,
    best_grade: Grade,
    supplies: tuple[str, ...],
    missing: dict[str, str],
    versions: str,
    prefixes: Iterable[PrefixKind],
    open: Callable[[LogContext], LogReader],
    express: Callable[[ReadContext], tuple[ExpressKind, ...]] | None = None,
    enable_hint: str = "",
) -> Format:
    """The format of one program's lines in text logs."""

    def sniff(head: Head) -> Guess | None:
        return next((guess for guess, _entry in vote(head, (entry,))), None)

    def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
        return read_alone(entry, records, context)

    entry = Format(
        name=name,
        title=title,
        framing="lines",
        best_grade=best_grade,
        supplies=supplies,
        missing=missing,
        versions=versions,
        sniff=sniff,
        read=read,
        enable_hint=enable_hint,
        dialect=LogDialect(frozenset(prefixes), open, express),
    )
    return entry


def vote(head: Head, formats: Sequence[Format]) -> list[tuple[Guess, Format]]:
    """Guesses of the dialects that know lines of the head, each by its share of the lines."""
    lines = head.lines[:_MAX_LINES] or (head.text[:_MAX_CHARS],)
    tally = Tally()

    def new_context() -> ReadContext:
        return ReadContext(path=head.path, tally=tally, modified_at_ns=0)

    router = LogRouter(formats, tally, new_context=new_context, new_sink=lambda _entry: _drop)
    for number, text in enumerate(lines, start=1):
        router.take(Record(number, number, text[:_MAX_CHARS].encode()))
    router.settle()
    votes = ((_guess(part.used, part.lines, len(lines)), part.format) for part in router.parts)
    return [(guess, entry) for guess, entry in votes if guess is not None]


def _drop(row: Row, time: LineTime | None) -> None:
    """Rows of a head say nothing."""


def _guess(used: int, known: int, lines: int) -> Guess | None:
    if used:
        share = min(1.0, known / lines)
        return Guess(
            0.6 + 0.35 * share,
            f"{known} of {lines} lines are of this program, {used} of them with data",
        )
    if known:
        return Guess(0.35 + 0.3 * known / lines, f"{known} of {lines} lines have its prefix")
    return None
