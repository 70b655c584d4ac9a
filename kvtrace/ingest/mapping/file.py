"""The reader of one mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kvtrace.ingest.contract import ReadContext, Record, RequestRow
from kvtrace.ingest.mapping.clock import ClockChoice, choose_clock
from kvtrace.ingest.mapping.head import Fit
from kvtrace.ingest.mapping.meanings import told_inclusive
from kvtrace.ingest.mapping.notes import describe
from kvtrace.ingest.mapping.rows import Clocks, MappedRows
from kvtrace.ingest.mapping.spec import InstantSpec, TimeSpec
from kvtrace.ingest.mapping.spec import Mapping as MappingFile
from kvtrace.ingest.mapping.values import Places, record_list, split_row
from kvtrace.ingest.prompts.chat import render_messages
from kvtrace.ingest.values.cells import BadCellError
from kvtrace.ingest.values.jsonfields import Ignored


@dataclass(slots=True, repr=False)
class MappedFile:
    """The reader of one file."""

    mapping: MappingFile
    fit: Fit
    name: str
    _places: Places = field(init=False)
    _clocks: Clocks = field(init=False)
    _samples: list[list[str | None]] = field(init=False)

    def __post_init__(self) -> None:
        self._places = Places(self.fit.paths)
        self._samples = [self._sample(example) for example in self.fit.head.examples]

    def _sample(self, example: Mapping[str, object]) -> list[str | None]:
        if self.fit.head.header:
            return self._places.cell_values({key: str(cell) for key, cell in example.items()})
        try:
            return self._places.json_values(msgspec.json.encode(example))
        except (msgspec.DecodeError, msgspec.EncodeError, UnicodeError, RecursionError):
            return [None] * len(self.fit.paths)

    def check(self) -> None:
        """Judge the clock by the first values.

        Raises:
            UsageError: what the mapping says of the time contradicts them.
        """
        source = self.fit.source
        self._clocks = Clocks(
            None if source.time is None else self._choice(source.time),
            self._instant(source.first_token_at),
            self._instant(source.finished_at),
        )

    def _instant(self, spec: InstantSpec | None) -> ClockChoice | None:
        time = self.fit.source.time
        if spec is None or time is None:
            return None
        unit = time.unit if spec.unit == "auto" else spec.unit
        return self._choice(TimeSpec(spec.ref, unit, time.zone, clock=time.clock))

    def _choice(self, spec: TimeSpec) -> ClockChoice:
        slot = list(self.fit.source.refs()).index(spec.ref)
        absent = self.fit.source.absent | {"", "-", "null"}
        values = [
            text.strip()
            for sample in self._samples
            if (text := sample[slot]) is not None and text.strip().lower() not in absent
        ]
        return choose_clock(spec, values, mapping=self.mapping.path, path=self.name)

    def read(self, records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
        """The rows of the file; every record gets its outcome."""
        source = self.fit.source
        rows = MappedRows(source, context, clocks=self._clocks)
        told = None
        if source.prompt_includes_cached is None:
            told = told_inclusive(filter(None, map(rows.counted_or_none, self._samples)))
            rows.is_inclusive = told is None or told[0]
        else:
            rows.is_inclusive = source.prompt_includes_cached
        self._calibrate(rows, context)
        parse, tally = self._parser(rows), context.tally
        for record in records:
            try:
                made = parse(record)
            except BadCellError as bad:
                tally.reject(record, bad.reason, bad.detail)
            except msgspec.ValidationError as bad:
                tally.reject(record, "invalid_field", str(bad))
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                tally.reject(record, "invalid_json", None)
            else:
                if isinstance(made, Ignored):
                    tally.ignore(made.reason)
                else:
                    tally.use()
                    yield from made
        describe(source, context, rows, told, meant=self.fit.head.meant)

    def _parser(self, rows: MappedRows) -> Callable[[Record], Sequence[RequestRow] | Ignored]:
        """What makes the rows of one record."""
        list_keys = self.fit.head.list_keys
        if self.fit.head.header:
            table = _CsvRows(self.fit, self._places)

            def parse(record: Record) -> Sequence[RequestRow] | Ignored:
                values = table.of(record)
                return values if isinstance(values, Ignored) else rows.only(record, values)
        elif list_keys is not None:

            def parse(record: Record) -> Sequence[RequestRow] | Ignored:
                elements = record_list(record.data, list_keys)
                if elements is None:
                    return rows.only(record, self._places.json_values(record.data))
                return rows.of_list(record, elements, self._places)
        else:

            def parse(record: Record) -> Sequence[RequestRow] | Ignored:
                return rows.only(record, self._places.json_values(record.data))

        return parse

    def _calibrate(self, rows: MappedRows, context: ReadContext) -> None:
        """Measure the bytes a token on the first prompts whose tokens the file states."""
        source, hasher = self.fit.source, context.prompt_hasher
        if source.prompt is None or hasher is None:
            return
        slot = list(source.refs()).index(source.prompt)
        pairs = []
        for sample in self._samples:
            text, counts = sample[slot], rows.counted_or_none(sample)
            if text is not None and counts is not None and counts.prompt:
                pairs.append((_prompt_bytes(text), counts.prompt))
        hasher.calibrate(pairs)


def _prompt_bytes(text: str) -> int:
    octets = text.encode("utf-8", "surrogatepass")
    if text.lstrip()[:1] != "[":
        return len(octets)
    try:
        return len(render_messages(octets))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return len(octets)


class _CsvRows:
    """The values of CSV records, by the header that stands first, or by the stated columns."""

    def __init__(self, found: Fit, places: Places) -> None:
        self._header = found.head.header
        self._names = frozenset(self._header)
        self._columns: tuple[str, ...] = found.source.columns
        self._delimiter = found.head.delimiter
        self._places = places
        self._last_is_mapped = any(keys[0] == self._header[-1] for keys in found.paths)

    def of(self, record: Record) -> list[str | None] | Ignored:
        """The values of one record, unless it is a header.

        Raises:
            BadCellError: the cells are not those of the header, or the file ends in a number.
        """
        cells = tuple(split_row(record.data, self._delimiter))
        if len(cells) == len(self._header) and frozenset(cells) == self._names:
            reason = "repeated_header" if self._columns else "header"
            self._columns = cells
            return Ignored(reason)
        if not self._columns:
            raise BadCellError("no_header", "a row stands before the header")
        if len(cells) != len(self._columns):
            raise BadCellError("wrong_cell_count", f"{len(self._columns)} cells are due")
        if not record.terminated and self._last_is_mapped and cells[-1][-1:].isdigit():
            raise BadCellError("damaged_line", "the file ends in a number, which may be cut")
        return self._places.cell_values(dict(zip(self._columns, cells, strict=True)))
