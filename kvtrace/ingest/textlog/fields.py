"""Fields inside log messages: counts, decimals, printed durations, `key=value` tails, span heads.

Numbers are plain ASCII digits; what else stands where a number must be raises `BadField`, which
names the field and never its value.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import INT64_MAX, seconds_to_ns
from kvtrace.ingest.contract import LineTime
from kvtrace.ingest.values.limits import MAX_COUNT
from kvtrace.units import NS_PER_MS, NS_PER_S, NS_PER_US, S_PER_HOUR

_COUNT = re.compile(r"[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?")
_UNKNOWN: Final = frozenset({"", "None", "none", "null", "N/A", "n/a", "-", "nan", "NaN"})
_PART = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,18})?)(ns|us|µs|μs|ms|s|m|h)")
_PARTS = re.compile(rf"(?:{_PART.pattern}){{1,6}}")
_UNIT_NS: Final = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,  # the micro sign
    "μs": NS_PER_US,  # the Greek letter
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": S_PER_HOUR * NS_PER_S,
}
_PAIR = re.compile(
    r'\s*+([A-Za-z_][\w.-]{0,80})=("(?:[^"\\]++|\\.)*+"|[^\s"]*+)(?=\s|\Z)', re.DOTALL
)
_SPAN_NAME = re.compile(r"[A-Za-z_][\w.:-]{0,200}\{")
_SPAN_PIECE = re.compile(r'[^{}"]++|"(?:[^"\\]++|\\.)*+"|[{}]', re.DOTALL)
_MAX_SPANS: Final = 16
_MAX_CHARS: Final = 65_536
"""Longer pairs and spans are of no program that is read here."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)


class BadField(ValueError):
    """A field holds something else than it must; the text names field and cause."""


def count_of(name: str, text: str | None) -> int | None:
    """The count; None where the field is absent or says that it is unknown.

    Raises:
        BadField: it is no count.
    """
    if text is None or text in _UNKNOWN:
        return None
    if _COUNT.fullmatch(text) is None or int(text) > MAX_COUNT:
        raise BadField(f"`{name}` is not a count")
    return int(text)


def elapsed_ns(name: str, text: str | None, flags: list[str], *, power: int = 0) -> int | None:
    """Nanoseconds of a decimal duration; a negative one is unknown and flagged `negative_` + name.

    `power` is that of ten from the unit of the text to seconds: -3 for milliseconds.

    Raises:
        BadField: it is no duration.
    """
    if text is None or text in _UNKNOWN:
        return None
    ns = seconds_to_ns(Decimal(text).scaleb(power)) if _DECIMAL.fullmatch(text) else None
    if ns is None:
        raise BadField(f"`{name}` is not a duration")
    if ns < 0:
        flags.append(f"negative_{name}")
        return None
    return ns


def printed_duration_ns(name: str, text: str) -> int:
    """Nanoseconds of a duration as Go or Rust prints it: `1m12s`, `54.81µs`, `2m3.5s`, `0s`.

    Raises:
        BadField: it is no such duration, or does not fit 64 bits of nanoseconds.
    """
    if _PARTS.fullmatch(text) is None:
        raise BadField(f"`{name}` is not a duration")
    ns = sum(Decimal(number) * _UNIT_NS[unit] for number, unit in _PART.findall(text))
    whole = seconds_to_ns(Decimal(ns).scaleb(-9))
    if whole is None:
        raise BadField(f"`{name}` is longer than any duration")
    return whole


def llm_of(name: str | None) -> str | None:
    """The model's name, None if empty; of a path its last part (a path may name people)."""
    if not name:
        return None
    if name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name:
        return re.split(r"[/\\]", name.rstrip("/\\"))[-1] or None
    return name


def key_values(text: str) -> dict[str, str] | None:
    """The pairs of `k=v k2="quoted"`, quotes taken off; None if anything else stands there."""
    if len(text) > _MAX_CHARS:
        return None
    pairs: dict[str, str] = {}
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _PAIR.match(text, at, end)
        if match is None or match[1] in pairs:
            return None
        value = match[2]
        pairs[match[1]] = value[1:-1] if value.startswith('"') else value
        at = match.end()
    return pairs


def json_fields(document: str | None) -> dict[str, str]:
    """The scalar values of a JSON object as text, numbers exactly as written."""
    try:
        found = _OBJECT.decode(document or "{}")
    except (msgspec.DecodeError, RecursionError, ValueError, ArithmeticError):
        return {}
    return {
        key: str(value)
        for key, value in found.items()
        if isinstance(value, str | int | Decimal) and not isinstance(value, bool)
    }


def split_spans(text: str) -> tuple[list[str], str]:
    """What stands in the braces of the spans that `tracing` prints in front, and the rest.

    `http{a=1}:generate{b="}"}: target: message` gives [`a=1`, `b="}"`] and `target: message`.
    Without a whole span in front the rest is the text.
    """
    spans: list[str] = []
    at = 0
    while len(spans) < _MAX_SPANS and len(text) <= _MAX_CHARS:
        name = _SPAN_NAME.match(text, at)
        end = _closing_brace(text, name.end()) if name is not None else None
        if name is None or end is None:
            break
        spans.append(text[name.end() : end])
        if text.startswith(": ", end + 1):
            return spans, text[end + 3 :]
        if not text.startswith(":", end + 1):
            break
        at = end + 2
    return [], text


def _closing_brace(text: str, start: int) -> int | None:
    depth, at = 1, start
    while depth:
        piece = _SPAN_PIECE.match(text, at)
        if piece is None:
            return None
        at = piece.end()
        depth += {"{": 1, "}": -1}.get(piece[0], 0)
    return at - 1


def earlier(time: LineTime, ns: int) -> LineTime:
    """The stamps of a line moved back; one without year is dropped if its day would change."""
    is_same_day = time.month_day is not None and time.time_ns >= ns
    return LineTime(
        _moved(time.instant_ns, ns),
        _moved(time.naive_ns, ns),
        time.month_day if is_same_day else None,
        time.time_ns - ns if is_same_day else 0,
        time.wraps,
    )


def _moved(stamp_ns: int | None, ns: int) -> int | None:
    """The stamp moved back; None if it is unknown, or no 64 bits hold what comes out."""
    if stamp_ns is None or stamp_ns - ns < -INT64_MAX:
        return None
    return stamp_ns - ns
