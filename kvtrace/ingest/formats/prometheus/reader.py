"""Records of an exposition to rows: every record one outcome, every scrape one row a target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from kvtrace.ingest.contract import Metric, ReadContext, Record, Row, SampleRow
from kvtrace.ingest.formats.prometheus.exposition import (
    Labels,
    Marker,
    SampleLine,
    is_end,
    parse_comment,
    parse_labels,
    parse_sample,
    stamp_ns,
)
from kvtrace.ingest.formats.prometheus.facts import FactBook, config_capacity_tokens
from kvtrace.ingest.formats.prometheus.gains import GainBook
from kvtrace.ingest.formats.prometheus.observe import Window, observe
from kvtrace.ingest.formats.prometheus.scrapes import Scrape, ScrapeBook
from kvtrace.ingest.formats.prometheus.series import CONFIG_INFO, Series, resolve, series_of
from kvtrace.ingest.formats.prometheus.targets import Target, name_targets

_MAX_REMEMBERED: Final = 100_000
"""Label sets of which the meaning is remembered; past it they are parsed again."""
_MANY_RESTARTS: Final = 1 / 3
_JUDGED_INTERVALS: Final = 6
_MAX_VALUE: Final = 1e18
"""An exabyte: no counter of bytes, tokens or seconds comes near."""
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
        self._facts = FactBook()
        self._series: dict[tuple[str, str, str, bool, Labels], Series] = {}
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
                self._help(found.name, found.text)
            self._tally.ignore("comment")
            return
        self._book.mark(found.time_ns)
        if found.time_ns is None:
            self._tally.reject(record, "invalid_field", "the time of the scrape is no instant")
        else:
            self._tally.use()

    def _help(self, name: str, text: str) -> None:
        known = resolve(name)
        if known is not None and any(use.hit_unit == "help" for use in known.family.uses):
            self._facts.saw_help(known.base, text)

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
        value = sample.value
        if series.base == CONFIG_INFO:
            self._facts.saw_config(series.labels)
            capacity = config_capacity_tokens(series.labels)
            value = math.nan if capacity is None else float(capacity)
        if not math.isfinite(value):
            self._tally.ignore("no_value")
            return
        if abs(value) > _MAX_VALUE:
            self._tally.reject(record, "invalid_field", "`value` is larger than any count")
            return
        if series.is_counter and value < 0:
            self._tally.reject(record, "invalid_field", "`value` of a counter is negative")
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
        if labels is None:
            return _DAMAGED
        known = resolve(sample.name)
        if known is None:
            return "metric_not_used"
        key = (known.program.slug, known.base, known.suffix, known.is_created, labels)
        series = self._series.get(key)
        if series is not None:
            return series
        found = series_of(known, labels)
        if isinstance(found, str):
            return found
        self._facts.saw_series(known.program.slug, known.base, labels)
        self._series[key] = found
        return found

    # Rows

    def rows(self) -> list[Row]:
        """One row a scrape and target, in file order; fills the context."""
        scrapes = self._book.finish()
        self._fill_clock(scrapes)
        self._facts.fill(self._context)
        names = name_targets(series.target for series in self._series.values())
        gain_book = GainBook()
        times = [scrape.time_ns for scrape in scrapes]
        rows: list[Row] = []
        for scrape in scrapes:
            gains = gain_book.take(scrape)
            by_target: dict[Target, list[tuple[Series, float]]] = {}
            for series, value in scrape.values.items():
                by_target.setdefault(series.target, []).append((series, value))
            window = Window(times, scrape.time_ns)
            for target, values in by_target.items():
                metrics = observe(values, gains, window, self._facts.help_units)
                if metrics:
                    rows.append(_row(scrape, target, names[target], metrics))
        self._note_restarts(gain_book)
        rows.sort(key=lambda row: row.offset)
        return rows

    def _fill_clock(self, scrapes: list[Scrape]) -> None:
        context = self._context
        timed = sum(scrape.time_ns is not None for scrape in scrapes)
        if timed:
            context.clock = "utc"
            context.clock_reason = "the scrapes carry their time"
            if timed < len(scrapes):
                context.clock_reason = f"{timed} of {len(scrapes)} scrapes carry their time"
            return
        context.clock = "order"
        context.clock_reason = "no sample and no marker carries a time"
        if scrapes:
            context.note(
                "scrape_time_unknown",
                "The scrapes carry no time: write `# scrape_ts EPOCH` before each"
                ' (`echo "# scrape_ts $(date +%s)"`) for rates and a time axis.',
            )

    def _note_restarts(self, gain_book: GainBook) -> None:
        restarts = sum(gain_book.restarts.values())
        if not restarts:
            return
        self._context.note(
            "counters_restarted",
            f"Counters restarted {restarts} time{'s' if restarts > 1 else ''}; what was counted"
            " between the last scrape and a restart is lost.",
        )
        for target, count in gain_book.restarts.items():
            intervals = gain_book.intervals.get(target, 0)
            if intervals >= _JUDGED_INTERVALS and count > _MANY_RESTARTS * intervals:
                self._context.note(
                    "scrapes_interleaved",
                    "Counters drop in more than a third of the intervals: scrapes of several"
                    " targets seem to alternate without a label that tells them apart.",
                    severity="warning",
                )


def _row(scrape: Scrape, target: Target, name: str | None, metrics: list[Metric]) -> SampleRow:
    offset, line = scrape.first[target]
    return SampleRow(
        offset=offset, line=line, observed_at_ns=scrape.time_ns, engine=name, metrics=metrics
    )
