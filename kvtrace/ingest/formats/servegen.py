"""ServeGen's client files: distributions of a client, not requests; recognised and left alone.

Shape read from alibaba/ServeGen: `chunk-N-trace.csv` without a header (start of a window in s,
rate, CV of the gaps, name of the arrival pattern, its two arguments) and `chunk-N-dataset.json`, an
object of windows, each with `input_tokens` and `output_tokens` as a text that holds a dict of
length and probability. What may be drawn from them is a workload, not a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, Row

_NUMBER: Final = r"-?[0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?"
_WINDOW: Final = re.compile(
    rf"{_NUMBER},{_NUMBER},(?:{_NUMBER}|nan)?,[A-Za-z_]{{0,20}}(?:,(?:{_NUMBER}|nan)?){{2}}"
)
_PATTERNS: Final = frozenset({"Gamma", "Weibull", "Exponential", "Poisson"})
_LENGTHS: Final = re.compile(r'"(?:input|output)_tokens": ?"\{[0-9]')
_HEAD_LINES: Final = 20
_WHY: Final = (
    "a client of ServeGen is a distribution of arrivals and lengths, not a log of requests: nothing"
    " can be measured in it; generate a workload with ServeGen and write its requests as CSV or"
    " JSON lines (arrival, prompt tokens, output tokens)"
)


def _sniff(head: Head) -> Guess | None:
    if head.text.lstrip()[:1] == "{" and _LENGTHS.search(head.text[:4096]):
        return Guess(0.9, "an object of windows with distributions of lengths")
    lines = head.lines[:_HEAD_LINES]
    windows = [line for line in lines if _WINDOW.fullmatch(line.replace(" ", "")[:400])]
    named = sum(line.split(",")[3].strip() in _PATTERNS for line in windows)
    if not named or 2 * len(windows) <= len(lines):
        return None
    return Guess(0.9, f"{named} of the first {len(lines)} lines name an arrival pattern")


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    for _record in records:
        context.tally.ignore("distribution")
    context.note("distributions_not_requests", _WHY, severity="warning")
    yield from ()


FORMATS: tuple[Format, ...] = (
    Format(
        name="servegen",
        title="ServeGen client (distributions, not requests)",
        framing="lines",
        best_grade="L",
        supplies=(),
        missing={"requests": "generate a workload with ServeGen and read that"},
        versions="alibaba/ServeGen, chunk-N-trace.csv and chunk-N-dataset.json",
        sniff=_sniff,
        read=_read,
        enable_hint="`servegen.construct.generate_workload` writes requests",
    ),
)
