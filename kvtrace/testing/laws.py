"""The laws that every format keeps, ours and those of other packages."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Row
from kvtrace.ingest.plugins.guard import is_guess, row_fault
from kvtrace.ingest.sniff import THRESHOLD, build_head, recognise
from kvtrace.testing.damage import hurt, without_a_field
from kvtrace.testing.reading import (
    Reading,
    Sample,
    read_records,
    read_sample,
    records_of,
    sample_bytes,
)

ROUNDS: Final = 3
_FOREIGN: Final = (
    b"", b"\n\n", b"\x00\x01\x02\xff" * 64, b'{"hello": "world"}\n', b"[]", b"a,b,c\n1,2,3\n",
    b"an ordinary line of text\n" * 3, b"{broken\n",
)  # fmt: skip
_PROSE: Final = re.compile(rb'"((?:[^"\\]|\\.){25,400})"')
_ALWAYS: Final = frozenset({"status", "computed_tokens"})
"""Columns that a reader may fill without naming them."""
_COUNTS: Final = re.compile(r"_(tokens|ns)$")
_ZERO: Final = re.compile(rb"(?:^|[:,\[\s])\"?0(?:\.0+)?\"?(?:$|[,}\]\s])")


class NonconformityError(AssertionError):
    """A format breaks a law."""


@dataclass(frozen=True, slots=True)
class Law:
    """One law, and what looks for breaches of it."""

    name: str
    meaning: str
    breaches: Callable[[Format, Sequence[bytes], Sequence[str]], Iterator[str]]

    def __str__(self) -> str:
        return self.name

    def check(
        self, entry: Format, samples: Sequence[Sample], *, canaries: Sequence[str] = ()
    ) -> None:
        """Nothing where the law is kept.

        `canaries` are texts of the samples (prompts, users, keys) that no row may repeat.

        Raises:
            NonconformityError: with the law and the first breach.
            ValueError: there is no sample.
        """
        if not samples:
            raise ValueError("a law needs a sample to be checked on")
        whole = [sample_bytes(sample) for sample in samples]
        for breach in self.breaches(entry, whole, canaries):
            raise NonconformityError(f"{entry.name} breaks `{self.name}`: {breach}")


def check_format(
    entry: Format,
    samples: Sequence[Sample],
    *,
    canaries: Sequence[str] = (),
    lines_stand_alone: bool = True,
) -> None:
    """Check every law on these samples of the format.

    `lines_stand_alone`: false where a line means something only behind those before it; then the
    order of lines is not changed.

    Raises:
        NonconformityError: with the first law that is broken.
    """
    for law in LAWS:
        if law.name != "order_free" or lines_stand_alone:
            law.check(entry, samples, canaries=canaries)


def _recognised(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    for number, data in enumerate(samples):
        found = recognise(data, "sample", formats=(entry,))
        if found.format is not entry:
            yield f"sample {number} is not taken for it: {found.reason}"
    for data in _FOREIGN:
        guess = entry.sniff(build_head(data, "foreign"))
        if guess is not None and not is_guess(guess):
            yield f"its guess of {data[:20]!r} is no `Guess` of 0 to 1"
        elif guess is not None and guess.confidence >= THRESHOLD:
            yield f"it claims {data[:20]!r}, which is not its own"


def _conserving(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    for data in samples:
        yield from _uncounted(read_sample(entry, data))


def _uncounted(reading: Reading) -> Iterator[str]:
    if reading.outcomes != reading.records:
        yield f"{reading.records} records were taken, {reading.outcomes} have an outcome"
    offsets = [row.offset for row in reading.rows]
    if offsets != sorted(offsets):
        yield "its rows are not in the order of the file"


def _typed(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    for data in samples:
        for row in read_sample(entry, data).rows:
            fault = row_fault(row)
            if fault is not None:
                yield f"line {row.line}: {fault}"
            yield from _implausible(row)


def _implausible(row: Row) -> Iterator[str]:
    """Counts and durations below zero."""
    for name in row.__struct_fields__:
        value = getattr(row, name)
        is_instant = name.endswith("_at_ns")
        if _COUNTS.search(name) and not is_instant and isinstance(value, int) and value < 0:
            yield f"line {row.line}: `{name}` is {value}"


def _deterministic(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    for data in samples:
        first, second = (_written(read_sample(entry, data)) for _ in range(2))
        if first != second:
            yield "the same bytes gave other rows the second time"


def _written(reading: Reading) -> list[str]:
    return [repr(row) for row in reading.rows]


def _sturdy(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    for data in samples:
        for how, damaged in hurt(data, ROUNDS):
            try:
                recognise(damaged, "sample", formats=(entry,))
                reading = read_sample(entry, damaged)
            except Exception as error:  # noqa: BLE001 (the law is that there is none)
                yield f"damaged input ({how}) raised {type(error).__name__}: {error}"
                continue
            yield from (f"damaged input ({how}): {one}" for one in _uncounted(reading))
            faults = (row_fault(row) for row in reading.rows)
            yield from (f"damaged input ({how}): {one}" for one in faults if one is not None)


def _declared(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    readings = [read_sample(entry, data) for data in samples]
    filled = {name for one in readings for name in one.filled_of_requests()}
    extra = sorted(filled - set(entry.supplies) - _ALWAYS)
    if extra:
        yield f"it fills {', '.join(extra)}, which `supplies` does not name"
    if "block_keys" in filled and entry.best_grade != "A":
        yield f"it gives block keys and calls its best grade {entry.best_grade}"


def _shown(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    filled = {name for data in samples for name in read_sample(entry, data).filled()}
    absent = sorted(set(entry.supplies) - filled)
    if absent:
        yield f"no sample fills {', '.join(absent)}, which `supplies` names"


def _null_is_not_zero(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    """Without a field, what it told is unknown: never a zero where there was a number."""
    for data in samples:
        lines = data.split(b"\n")
        said = {number for number, line in enumerate(lines, 1) if _ZERO.search(line)}
        whole = {row.line: row for row in read_sample(entry, data).rows if row.line not in said}
        for field, less in without_a_field(data):
            for row in read_sample(entry, less).rows:
                before = whole.get(row.line)
                if before is not None and type(before) is type(row):
                    yield from _zeroed(before, row, field)


def _zeroed(before: Row, after: Row, field: str) -> Iterator[str]:
    """Columns that turned to 0; a line that says 0 somewhere is not judged, nor are instants."""
    for name in before.__struct_fields__:
        was, now = getattr(before, name), getattr(after, name)
        is_count = _COUNTS.search(name) and not name.endswith("_at_ns")
        if is_count and was and now == 0 and now is not None:
            yield f"without `{field}` its column `{name}` is 0 in line {after.line}, not null"


def _private(entry: Format, samples: Sequence[bytes], canaries: Sequence[str]) -> Iterator[str]:
    """What rows and notes keep in the clear holds no prose of the log."""
    for data in samples:
        found = [text.decode("utf-8", "replace") for text in _PROSE.findall(data)]
        prose = {text for text in found if text.count(" ") >= 3} | set(canaries)
        reading = read_sample(entry, data)
        kept = [*_kept(reading)]
        for text in sorted(prose):
            if any(text in one for one in kept):
                yield f"{text[:24]!r} of the log stands in what it keeps"


def _kept(reading: Reading) -> Iterator[str]:
    """Texts that the pipeline stores as they are: ids are not among them, they become hashes."""
    for row in reading.rows:
        for name in ("llm", "adapter", "request_type", "engine", "path", "instance", "status"):
            value = getattr(row, name, None)
            if isinstance(value, str):
                yield value
        yield from getattr(row, "flags", ())
    context = reading.context
    for _, reason, detail in context.tally.rejects:
        yield from (reason, detail or "")
    yield from context.tally.ignored
    for note in context.notes:
        yield from (note.code, note.message)
    yield from (str(value) for value in context.engine_facts.values())


def _order_free(entry: Format, samples: Sequence[bytes], _: Sequence[str]) -> Iterator[str]:
    """Where each line stands for itself, their order changes nothing but the order of rows."""
    if entry.dialect is not None or entry.framing not in {"lines", "csv"}:
        return
    for data in samples:
        records, _blank = records_of(entry, data)
        head = 1 if entry.framing == "csv" else 0
        mixed = records[head:]
        random.Random(0).shuffle(mixed)  # noqa: S311
        first = read_records(entry, records)
        second = read_records(entry, [*records[:head], *mixed])
        if _as_set(first) != _as_set(second):
            yield "the rows depend on the order of the lines"


def _as_set(reading: Reading) -> Counter[str]:
    return Counter(repr(msgspec.structs.replace(row, offset=0, line=0)) for row in reading.rows)


LAWS: Final[tuple[Law, ...]] = (
    Law("recognised", "its own samples are taken for it, and nothing else", _recognised),
    Law("conserving", "every record has exactly one outcome, rows in file order", _conserving),
    Law("typed", "rows have the types and ranges of the contract", _typed),
    Law("deterministic", "the same bytes give the same rows", _deterministic),
    Law("sturdy", "damaged input raises nothing and loses no record", _sturdy),
    Law("declared", "`supplies` and the grade name all that the samples give", _declared),
    Law("shown", "the samples give all that `supplies` names", _shown),
    Law("null_is_not_zero", "what a log does not say is null", _null_is_not_zero),
    Law("private", "no text of people is kept in the clear", _private),
    Law("order_free", "lines that stand for themselves may come in any order", _order_free),
)
"""Every law, in the order in which they are checked."""
