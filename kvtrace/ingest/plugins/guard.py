"""What another package's format does wrong is an error that names the package, not a traceback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeGuard

from kvtrace.errors import InputError, KvtraceError, Location
from kvtrace.ingest.contract import (
    BlockEventRow,
    Format,
    Guess,
    Head,
    LogContext,
    LogDialect,
    LogLine,
    LogReader,
    ReadContext,
    Record,
    RequestRow,
    Row,
    SampleRow,
    TransferRow,
)

ROWS: Final = (RequestRow, SampleRow, TransferRow, BlockEventRow)
_INT64: Final = 1 << 63
_UINT64: Final = 1 << 64


def guarded(entry: Format, package: str) -> Format:
    """The format with every call of its code watched, its rows checked, its outcomes counted."""

    def sniff(head: Head) -> Guess | None:
        try:
            guess = entry.sniff(head)
        except Exception as error:
            raise _fault(entry, package, head.path, "looking at", error) from error
        if guess is not None and not is_guess(guess):
            raise _wrong(entry, package, head.path, "its guess is no `Guess` of 0 to 1")
        return guess

    def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
        counted = _Counted(records, context)
        rows: Iterator[Row] = iter(())
        try:
            rows = iter(entry.read(counted, context))
        except Exception as error:
            raise _fault(entry, package, context.path, "reading", error) from error
        for row in _each(rows, lambda e: _fault(entry, package, context.path, "reading", e)):
            problem = row_fault(row)
            if problem is not None:
                raise _wrong(entry, package, context.path, problem)
            yield row
        lost = counted.lost()
        if lost:
            raise _wrong(entry, package, context.path, lost)

    dialect = entry.dialect
    if dialect is not None:
        dialect = replace(dialect, open=_open_of(entry, dialect, package), express=None)
    return replace(entry, sniff=sniff, read=read, dialect=dialect)


def is_guess(guess: object) -> bool:
    """Whether it is a `Guess` with a confidence of 0 to 1 and a reason."""
    if not isinstance(guess, Guess) or not isinstance(guess.why, str):
        return False
    sure = guess.confidence
    return isinstance(sure, int | float) and math.isfinite(sure) and 0 <= sure <= 1


def row_fault(row: object) -> str | None:
    """What is wrong with the types of a row; None: nothing."""
    if not isinstance(row, ROWS):
        return f"it yields a {type(row).__name__}, which is no row"
    for name, kind in type(row).__annotations__.items():
        value = getattr(row, name)
        if value is not None and not _fits(value, kind):
            return f"`{name}` of a row is a {type(value).__name__}, or out of range ({kind})"
    keys = row.block_keys if isinstance(row, RequestRow) else None
    if keys is not None and not all(_is_int(key) and 0 <= key < _UINT64 for key in keys):
        return "`block_keys` of a row are not unsigned 64-bit"
    return None


def _fits(value: object, kind: str) -> bool:
    """Whether a value is of a field's kind, as it is written in the contract."""
    kinds = kind.split(" | ")
    if "int" in kinds:
        top = _UINT64 if isinstance(value, int) and value >= 0 else _INT64
        return _is_int(value) and -_INT64 <= value < top
    if "str" in kinds:
        return isinstance(value, str)
    if "bool" in kinds:
        return isinstance(value, bool)
    return True


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


class _Counted:
    """The records on their way to a reader, and the outcomes that it gave them."""

    def __init__(self, records: Iterable[Record], context: ReadContext) -> None:
        self._records = records
        self._tally = context.tally
        self._delivered = self._rejected = 0
        self._before = self._understood()
        self._rejects_before = len(self._tally.rejects)
        reject = self._tally.on_reject
        if reject is not None:
            self._tally.on_reject = self._counting(reject)

    def _counting(
        self, reject: Callable[[Record, str, str | None], None]
    ) -> Callable[[Record, str, str | None], None]:
        def count(record: Record, reason: str, detail: str | None) -> None:
            self._rejected += 1
            reject(record, reason, detail)

        return count

    def _understood(self) -> int:
        return self._tally.used + sum(self._tally.ignored.values())

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            self._delivered += 1
            yield record

    def lost(self) -> str | None:
        """Records without an outcome, or with two, in words."""
        outcomes = self._understood() - self._before + self._rejected
        outcomes += len(self._tally.rejects) - self._rejects_before
        if outcomes == self._delivered:
            return None
        return f"it took {self._delivered} records and gave {outcomes} outcomes on its tally"


def _each(rows: Iterator[Row], fault: Callable[[Exception], InputError]) -> Iterator[Row]:
    """The rows; what the reader raises becomes our error, what the records raise stays."""
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except KvtraceError:
            raise
        except Exception as error:
            raise fault(error) from error
        yield row


def _open_of(entry: Format, dialect: LogDialect, package: str) -> Callable[[LogContext], LogReader]:
    def open_reader(log: LogContext) -> LogReader:
        path = log.context.path
        try:
            return _Watched(dialect.open(log), entry, package, path)
        except Exception as error:
            raise _fault(entry, package, path, "reading", error) from error

    return open_reader


class _Watched:
    """A reader of log lines of another package."""

    def __init__(self, inner: LogReader, entry: Format, package: str, path: str) -> None:
        self._inner = inner
        self._said = entry, package, path

    def take(self, line: LogLine) -> bool:
        """As the reader does."""
        try:
            return bool(self._inner.take(line))
        except Exception as error:
            raise _fault(*self._said, "reading", error) from error

    def finish(self) -> None:
        """As the reader does."""
        try:
            self._inner.finish()
        except Exception as error:
            raise _fault(*self._said, "reading", error) from error


def _fault(entry: Format, package: str, path: str, doing: str, error: Exception) -> InputError:
    return InputError(
        "KVT-P004",
        f"format `{entry.name}` of package `{package}` failed while {doing} a file",
        where=Location(path),
        cause=f"{type(error).__name__}: {error}",
        hint="tell its authors; `KVTRACE_NO_PLUGINS=1` goes on without such packages",
    )


def _wrong(entry: Format, package: str, path: str, what: str) -> InputError:
    return InputError(
        "KVT-P005",
        f"format `{entry.name}` of package `{package}` breaks the rules of formats",
        where=Location(path),
        cause=what,
        hint="its authors check it with `kvtrace.testing`; `KVTRACE_NO_PLUGINS=1` goes on without",
    )
