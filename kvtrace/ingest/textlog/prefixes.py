"""Inner prefixes of log lines, told by their form: what a program's logger puts before a message.

The forms of one kind may be of several programs (klog and Mooncake both write glog's). File names
and line numbers in them are never looked at: they move with every release.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from kvtrace.ingest.clocks import IsoTime, parse_iso
from kvtrace.ingest.contract import PrefixKind
from kvtrace.units import NS_PER_S, NS_PER_US

_DATE: Final = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
VLLM: Final = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)"
    r" (?:(\[)[^\]\s]{1,160}:\d{1,6}\] |[\w./-]{1,160}:\d{1,6}\] )"
)
"""vLLM's, without year; the bracket before the file name is there from 0.8 on."""
_PLAIN = re.compile(
    r"(?:\((([A-Za-z][\w.:/-]{0,120}) pid=\d+)\) )?"
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)"
    r" (?:(\[)[^\]\s]{1,160}:\d{1,6}\] |[\w./-]{1,160}:\d{1,6}\] )"
)
"""vLLM's prefix with nothing around it but the process: most lines of its logs."""
_LMCACHE = re.compile(rf"\[({_DATE})\] LMCache ([A-Z]{{1,10}}): {{0,4}}")
_BRACKETED = re.compile(rf"\[({_DATE})((?: [A-Z]{{2,4}}\d{{1,5}}){{0,6}})\] ?")
_GPU_ONLY = re.compile(r"\[(gpu=\d{1,5})\] ")
_TRTLLM = re.compile(
    r"\[(\d\d)/(\d\d)/(\d{4})-(\d\d:\d\d:\d\d)\] ?\[TRT-LLM\]((?: ?\[[\w: .-]{1,40}\]){1,5}) ?"
)
_TRTLLM_CPP = re.compile(r"\[TensorRT-LLM\]((?:\[[\w: .-]{1,40}\]){1,4}) ?")
_GLOG = re.compile(
    r"([IWEF])(\d{4})?(\d{4}) {1,2}(\d\d:\d\d:\d\d)\.(\d{6}) +\d{1,10} [\w./-]{1,160}:\d{1,6}\] ?"
)
"""glog's and klog's; the year is there from glog 0.5 on where `log_year_in_prefix` is."""
_TRACING = re.compile(
    rf"(?:({_DATE}Z?) {{1,4}})?(TRACE|DEBUG|INFO|WARN|ERROR) {{1,4}}(?:([\w.:-]{{1,200}}): )?"
)
_LOGURU = re.compile(rf"({_DATE}) (?:[\w.]{{1,60}} )?(DEBUG|INFO|WARNING|ERROR|CRITICAL): {{1,8}}")
_GIN = re.compile(r"\[GIN\] (\d{4})/(\d\d)/(\d\d) - (\d\d:\d\d:\d\d) ")
_SLOG = re.compile(rf"time=({_DATE}(?:Z|[+-]\d\d:\d\d)) level=([A-Z]{{1,8}}) ")
_LEVEL_LETTERS: Final = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "D": "DEBUG"}
_PLAIN_STARTS: Final = frozenset((b"(", b"I", b"D", b"W", b"E", b"C"))
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
YearlessTime = tuple[int, int]
"""(month × 100 + day, ns since midnight)"""


class Prefix(NamedTuple):
    """A parsed inner prefix."""

    kind: PrefixKind
    end: int
    """Where the message starts."""
    yearless: YearlessTime | None = None
    naive: IsoTime | None = None
    instant: IsoTime | None = None
    label: str | None = None
    level: str | None = None
    is_time_wrong: bool = False
    """It has the form of a prefix, but there is no such date or time."""


NONE: Final = Prefix("none", 0)


class PlainLine(NamedTuple):
    """A line of vLLM without other layers."""

    text: str
    """From the prefix on."""
    message: str
    process: str | None
    writer: str | None
    level: str
    label: str
    yearless: YearlessTime | None
    """None: there is no such date or time."""


def parse_plain(data: bytes) -> PlainLine | None:
    """The line if it is of vLLM in its plainest layers; None sends it through all of them.

    It gives what peeling and `parse_prefix` give, in a fraction of their time.
    """
    if data[:1] not in _PLAIN_STARTS:
        return None
    text = data.decode("utf-8", "replace")
    match = _PLAIN.match(text)
    if match is None or "\r" in text or "\x1b" in text or "\0" in text:
        return None
    writer, process, level, stamp, bracket = match.groups()
    if process is not None and process.startswith("ServeReplica"):
        return None  # Ray's
    return PlainLine(
        text=text if process is None else text[match.start(3) :],
        message=text[match.end() :],
        process=process,
        writer=writer,
        level=level,
        label="bracket" if bracket else "plain",
        yearless=yearless_stamp(stamp),
    )


def parse_prefix(text: str, *, has_instant: bool) -> Prefix:
    """The inner prefix of a peeled line; kind `none` if it has no known one.

    `has_instant`: an outer layer took a time in front away, as it does with that of tracing.
    """
    first = text[:1]
    if first == "[":
        return _opening_bracket(text)
    if first in "DIWEFCT":
        return _capital(text, has_instant=has_instant)
    if first == "{":
        return Prefix("json", 0)
    if first == "2":
        return _date_first(text)
    if first == " " and has_instant:
        stripped = text.lstrip(" ")
        shift = len(text) - len(stripped)
        found = _capital(stripped, has_instant=True)
        is_traced = found.kind in ("tracing", "formatted")
        return found._replace(end=found.end + shift) if is_traced else NONE
    if first == "t":
        match = _SLOG.match(text)
        if match is not None:
            return Prefix("none", 0, instant=parse_iso(match[1]), level=match[2])
    return NONE


def _opening_bracket(text: str) -> Prefix:
    match = _LMCACHE.match(text)
    if match is not None:
        return _dated("lmcache", match, match[1], level=match[2])
    match = _BRACKETED.match(text)
    if match is not None:
        return _dated("bracketed", match, match[1], label=match[2].strip() or None)
    match = _GPU_ONLY.match(text)
    if match is not None:
        return Prefix("bracketed", match.end(), label=match[1])
    match = _TRTLLM.match(text)
    if match is not None:
        month, day, year, clock, tags = match.groups()
        return _dated("trtllm", match, f"{year}-{month}-{day} {clock}", label=tags.strip())
    match = _TRTLLM_CPP.match(text)
    if match is not None:
        return Prefix("trtllm", match.end(), label=match[1])
    match = _GIN.match(text)
    if match is not None:
        year, month, day, clock = match.groups()
        return Prefix("none", 0, naive=parse_iso(f"{year}-{month}-{day} {clock}"))
    return NONE


def _capital(text: str, *, has_instant: bool) -> Prefix:
    match = VLLM.match(text)
    if match is not None:
        stamp = yearless_stamp(match[2])
        return Prefix(
            "vllm",
            match.end(),
            yearless=stamp,
            label="bracket" if match[3] else "plain",
            level=match[1],
            is_time_wrong=stamp is None,
        )
    match = _GLOG.match(text)
    if match is not None:
        return _glog(match)
    if has_instant:
        match = _TRACING.match(text)
        if match is not None and match[2] is not None:
            return _traced(Prefix("tracing", match.end(), label=match[3], level=match[2]))
    return NONE


def _traced(found: Prefix) -> Prefix:
    """A target as Dynamo names Python's (`module.function`, no Rust path) says: a bare message.

    Which engine runs inside Dynamo is for the dialects to tell, as behind a JSON formatter.
    """
    is_python = found.label is not None and "." in found.label and "::" not in found.label
    return found._replace(kind="formatted", label=None) if is_python else found


def _glog(match: re.Match[str]) -> Prefix:
    letter, year, day, clock, fraction = match.groups()
    level = _LEVEL_LETTERS[letter]
    if year is not None:
        return _dated("glog", match, f"{year}-{day[:2]}-{day[2:]} {clock}.{fraction}", level=level)
    stamp = _yearless(day, clock)
    if stamp is not None:
        stamp = (stamp[0], stamp[1] + int(fraction) * NS_PER_US)
    return Prefix("glog", match.end(), yearless=stamp, level=level, is_time_wrong=stamp is None)


def _date_first(text: str) -> Prefix:
    match = _LOGURU.match(text)
    if match is not None:
        return _dated("none", match, match[1], level=match[2])
    match = _TRACING.match(text)
    if match is not None and match[1] is not None:
        found = _traced(_dated("tracing", match, match[1], label=match[3], level=match[2]))
        if found.naive is not None and found.naive.is_zoned:
            return found._replace(instant=found.naive, naive=None)
        return found
    return NONE


def _dated(
    kind: PrefixKind,
    match: re.Match[str],
    stamp: str,
    *,
    label: str | None = None,
    level: str | None = None,
) -> Prefix:
    naive = parse_iso(stamp)
    return Prefix(
        kind, match.end(), naive=naive, label=label, level=level, is_time_wrong=naive is None
    )


@functools.lru_cache(maxsize=1024)
def yearless_stamp(stamp: str | bytes) -> YearlessTime | None:
    """The stamp of `MM-DD HH:MM:SS`; many lines share one, and then the object."""
    if isinstance(stamp, bytes):
        return yearless_stamp(stamp.decode())
    return _yearless(stamp[:2] + stamp[3:5], stamp[6:])


@functools.lru_cache(maxsize=1024)
def _yearless(month_day: str, clock: str) -> YearlessTime | None:
    """The stamp of `MMDD` and `HH:MM:SS`; many lines share one."""
    month, day = int(month_day[:2]), int(month_day[2:])
    hour, minute, second = int(clock[:2]), int(clock[3:5]), int(clock[6:])
    is_date = 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]
    if not is_date or hour > 23 or minute > 59 or second > 60:
        return None
    return month * 100 + day, (hour * 3600 + minute * 60 + second) * NS_PER_S
