"""Lines of the text exposition format 0.0.4 and of OpenMetrics 1.0.

A line is read whole or not at all: name, labels, value, optional time stamp, optional exemplar, and
nothing behind them. All patterns are possessive, so that hostile lines cost no more than their
length.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final, NamedTuple

from kvtrace.ingest.clocks import parse_iso, seconds_to_ns

_NUMBER: Final = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,4})?"
_VALUE: Final = rf"{_NUMBER}|[+-]?[Ii]nf|[Nn]a[Nn]"
_LABELS: Final = r'\{(?:[^"{}]*+"(?:[^"\\]|\\.)*+")*+[^"{}]*+\}'
_SAMPLE: Final = re.compile(
    rf"([A-Za-z_:][A-Za-z0-9_:.]*+)[ \t]*+({_LABELS})?+[ \t]*+(?<=[ \t}}])({_VALUE})"
    rf"(?:[ \t]++({_NUMBER}))?+"
    rf"(?:[ \t]++#[ \t]*+{_LABELS}[ \t]++(?:{_VALUE})(?:[ \t]++{_NUMBER})?+)?+[ \t]*+",
    re.DOTALL,
)
_LABEL: Final = re.compile(
    r'[ \t]*+([A-Za-z_][A-Za-z0-9_.]*+)[ \t]*+=[ \t]*+"((?:[^"\\]|\\.)*+)"[ \t]*+(,|\Z)', re.DOTALL
)
_MARKER: Final = re.compile(
    r"#[ \t]*(scrape_ts|scraped_at)[ \t]+([^ \t]{1,40})(?:[ \t].*)?", re.DOTALL
)
_HELP: Final = re.compile(r"#[ \t]*(HELP|TYPE|UNIT)[ \t]+([^ \t]{1,200})(?:[ \t]+(.*))?", re.DOTALL)
_ESCAPES: Final = re.compile(r'\\([\\"n])')
_MS_FROM: Final = Decimal(10**11)
"""Stamps from here on are ms (1973 in ms, year 5138 in s): 0.0.4 writes ms, OpenMetrics seconds."""
_EARLIEST_S: Final = Decimal(10**8)
"""An instant before 1973 is no time of a scrape."""

_MAX_LABELS: Final = 256

Labels = tuple[tuple[str, str], ...]


class SampleLine(NamedTuple):
    """One sample as written; the labels stay text until somebody wants them."""

    name: str
    labels_text: str
    value: float
    stamp: str | None


class MetaLine(NamedTuple):
    """A HELP, TYPE or UNIT line."""

    kind: str
    name: str
    text: str


class Marker(NamedTuple):
    """A line that says when the samples behind it were scraped; None: it names no instant."""

    time_ns: int | None


def parse_sample(text: str) -> SampleLine | None:
    """The sample of a line; None if the line is damaged."""
    match = _SAMPLE.fullmatch(text)
    if match is None:
        return None
    name, labels, text_value, stamp = match.groups()
    value = float(text_value)
    if math.isinf(value) and text_value[-1].isdigit():
        return None  # too many digits for any counter
    return SampleLine(name, labels or "", value, stamp)


def parse_labels(text: str) -> Labels | None:
    """Sorted pairs of `{a="b",c="d"}`; None if they are malformed or a name stands twice."""
    body = text[1:-1]
    pairs: dict[str, str] = {}
    at = 0
    while (match := _LABEL.match(body, at)) is not None:
        if match[1] in pairs or len(pairs) >= _MAX_LABELS:
            return None
        pairs[match[1]] = _ESCAPES.sub(_unescaped, match[2])
        at = match.end()
    return tuple(sorted(pairs.items())) if not body[at:].strip(" \t") else None


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def parse_comment(text: str) -> Marker | MetaLine | None:
    """A time marker or a HELP, TYPE or UNIT line; None for any other comment."""
    if (match := _MARKER.fullmatch(text)) is not None:
        if match[1] == "scrape_ts":
            return Marker(stamp_ns(match[2]))
        found = parse_iso(match[2])
        return Marker(found.ns if found is not None and found.is_zoned else None)
    if (match := _HELP.fullmatch(text)) is not None:
        return MetaLine(match[1], match[2], match[3] or "")
    return None


def is_end(text: str) -> bool:
    """Whether this is OpenMetrics' end of one exposition."""
    return text.rstrip() == "# EOF"


def stamp_ns(text: str) -> int | None:
    """Nanoseconds of a stamp in s or ms, told apart by size; None if it is none from 1973 on."""
    if len(text) > 40 or re.fullmatch(_NUMBER, text) is None:
        return None
    number = Decimal(text)
    if number.adjusted() > 18:
        return None
    seconds = number / 1000 if number >= _MS_FROM else number
    return seconds_to_ns(seconds) if seconds >= _EARLIEST_S else None
