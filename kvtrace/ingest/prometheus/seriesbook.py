"""The series of one file: what each name and its labels mean, and the rows that they give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kvtrace.ingest.contract import Metric, ReadContext, SampleRow
from kvtrace.ingest.prometheus.exposition import Labels
from kvtrace.ingest.prometheus.facts import FactBook, config_capacity_tokens
from kvtrace.ingest.prometheus.gains import GainBook
from kvtrace.ingest.prometheus.observe import Window, observe
from kvtrace.ingest.prometheus.scrapes import Scrape
from kvtrace.ingest.prometheus.series import CONFIG_INFO, Series, resolve, series_of
from kvtrace.ingest.prometheus.targets import Target, name_targets

_MANY_RESTARTS: Final = 1 / 3
_JUDGED_INTERVALS: Final = 6
_MAX_VALUE: Final = 1e18
"""An exabyte: no counter of bytes, tokens or seconds comes near."""


class SeriesBook:
    """Understands the series of one file and makes its rows."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._facts = FactBook()
        self._series: dict[tuple[str, str, str, bool, Labels], Series] = {}

    def saw_help(self, name: str, text: str) -> None:
        """The HELP text of a name."""
        known = resolve(name)
        if known is not None and any(use.hit_unit == "help" for use in known.family.uses):
            self._facts.saw_help(known.base, text)

    def understand(self, name: str, labels: Labels) -> Series | str:
        """What name and labels stand for, or why they are not used."""
        known = resolve(name)
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

    def value(self, series: Series, value: float) -> float | None:
        """The value that counts; None if there is none.

        Raises:
            ValueError: no counter or gauge has such a value; the text says why.
        """
        if series.base == CONFIG_INFO:
            self._facts.saw_config(series.labels)
            capacity = config_capacity_tokens(series.labels)
            value = math.nan if capacity is None else float(capacity)
        if not math.isfinite(value):
            return None
        if abs(value) > _MAX_VALUE:
            raise ValueError("`value` is larger than any count")
        if series.is_counter and value < 0:
            raise ValueError("`value` of a counter is negative")
        return value

    def rows(self, scrapes: list[Scrape]) -> Iterator[SampleRow]:
        """One row a scrape and target, in file order; fills the context. Empties the scrapes."""
        self._fill_clock(scrapes)
        self._facts.fill(self._context)
        rows = self._rows_by_time(scrapes)
        if _is_in_file_order(scrapes):
            yield from rows
        else:
            yield from sorted(rows, key=lambda row: row.offset)

    def _rows_by_time(self, scrapes: list[Scrape]) -> Iterator[SampleRow]:
        names = name_targets(series.target for series in self._series.values())
        gain_book = GainBook()
        times = [scrape.time_ns for scrape in scrapes]
        for scrape in scrapes:
            gains = gain_book.take(scrape)
            by_target: dict[Target, list[tuple[Series, float]]] = {}
            for series, value in scrape.values.items():
                by_target.setdefault(series.target, []).append((series, value))
            window = Window(times, scrape.time_ns)
            scrape.values.clear()  # a day of scrapes is large, and so are its rows
            for target, _ in sorted(scrape.first.items(), key=lambda item: item[1]):
                metrics = observe(by_target[target], gains, window, self._facts.help_units)
                if metrics:
                    yield _row(scrape, target, names[target], metrics)
        self._note_restarts(gain_book)

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


def _is_in_file_order(scrapes: list[Scrape]) -> bool:
    """Whether scrapes in order of time begin where the one before them ended, or later."""
    ends = [sorted(scrape.first.values()) for scrape in scrapes if scrape.first]
    return all(earlier[-1][0] <= later[0][0] for earlier, later in pairwise(ends))


def _row(scrape: Scrape, target: Target, name: str | None, metrics: list[Metric]) -> SampleRow:
    offset, line = scrape.first[target]
    return SampleRow(
        offset=offset, line=line, observed_at_ns=scrape.time_ns, engine=name, metrics=metrics
    )
