"""Records of an exposition to rows: every record one outcome, every scrape one row a target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kvtrace.ingest.contract import ReadContext, Record, Row, SampleRow
from kvtrace.ingest.prometheus.exposition import (
    Marker,
    SampleLine,
    is_end,
    parse_comment,
    parse_labels,
    parse_sample,
    stamp_ns,
)
from kvtrace.ingest.prometheus.scrapes import ScrapeBook
from kvtrace.ingest.prometheus.series import Series
from kvtrace.ingest.prometheus.seriesbook import SeriesBook

_MAX_REMEMBERED: Final = 100_000
"""Label sets of which the meaning is remembered; past it they are parsed again."""
_DAMAGED: Final = "damaged_line"


def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """The rows of one file, when all of it has been read."""
    file = _ExpositionFile(context)
    for record in records:
        file.take(record)
    yield from file.rows()


class _ExpositionFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._tally = context.tally
        self._book = ScrapeBook()
        self._series = SeriesBook(context)
        self._meaning: dict[tuple[str, str], Series | str] = {}

    def take(self, record: Record) -> None:
        """Give one record its outcome."""
        text = record.data.decode("utf-8", "replace").strip(" \t\r\0")
        if text.startswith("#"):
            self._comment(record, text)
            return
        sample = parse_sample(text) if record.terminated else None
        if sample is None:
            self._damaged(record)
            return
        self._sample(record, sample)

    def _damaged(self, record: Record) -> None:
        self._book.damaged()
        self._tally.reject(record, _DAMAGED)

    def _comment(self, record: Record, text: str) -> None:
        if is_end(text):
            self._book.end()
            self._tally.ignore("comment")
            return
        found = parse_comment(text) if record.terminated else None
        if not isinstance(found, Marker):
            if found is not None and found.kind == "HELP":
                self._series.saw_help(found.name, found.text)
            self._tally.ignore("comment")
            return
        self._book.mark(found.time_ns)
        if found.time_ns is None:
            self._tally.reject(record, "invalid_field", "the time of the scrape is no instant")
        else:
            self._tally.use()

    def _sample(self, record: Record, sample: SampleLine) -> None:
        meaning = self._meaning.get((sample.name, sample.labels_text))
        if meaning is None:
            meaning = self._learn(sample)
        if meaning == _DAMAGED:
            self._damaged(record)
            return
        if sample.stamp is None:
            self._book.saw(sample.name, sample.labels_text)
        if isinstance(meaning, str):
            self._tally.ignore(meaning)
            return
        self._use(record, sample, meaning)

    def _use(self, record: Record, sample: SampleLine, series: Series) -> None:
        try:
            value = self._series.value(series, sample.value)
        except ValueError as bad:
            self._tally.reject(record, "invalid_field", str(bad))
            return
        if value is None:
            self._tally.ignore("no_value")
            return
        place = (record.offset, record.line)
        if sample.stamp is None:
            is_new = self._book.add(series, value, *place)
        else:
            time_ns = stamp_ns(sample.stamp)
            if time_ns is None:
                self._tally.reject(record, "invalid_field", "the time stamp is no instant")
                return
            is_new = self._book.add_stamped(series, value, time_ns, *place)
        if is_new:
            self._tally.use()
        else:
            self._tally.ignore("repeated_sample")
            self._context.note(
                "repeated_samples",
                "Some series stand twice in one scrape; the first counts. Scrapes of several"
                " targets in one file need a label that tells them apart, such as `instance`.",
            )

    def _learn(self, sample: SampleLine) -> Series | str:
        """What the name and labels stand for; remembered, as every scrape repeats them."""
        meaning = self._understand(sample)
        if len(self._meaning) >= _MAX_REMEMBERED:
            self._meaning.clear()
        self._meaning[sample.name, sample.labels_text] = meaning
        return meaning

    def _understand(self, sample: SampleLine) -> Series | str:
        labels = parse_labels(sample.labels_text)
        return _DAMAGED if labels is None else self._series.understand(sample.name, labels)

    def rows(self) -> Iterator[SampleRow]:
        """The rows, when every record has its outcome."""
        return self._series.rows(self._book.finish())
