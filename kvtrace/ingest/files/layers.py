"""Outer layers around the lines of a program: containers, syslog, colours, process prefixes.

They are peeled from the outside in, only at the start of a line, so that text inside a message can
not pass for a layer. Lines that a container cut in pieces are joined again per stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from kvtrace.ingest.clocks import IsoTime, parse_iso
from kvtrace.ingest.contract import Record, Tally
from kvtrace.ingest.textlog.prefixes import NONE, YearlessTime, parse_prefix, yearless_stamp
from kvtrace.units import MIB

MAX_JOINED_CHARS: Final = 16 * MIB
"""A line joined from pieces may not grow past this, as no other line may."""
_CSI = re.compile(r"\x1b\[[0-9;?]*+[ -/]*+[@-~]")
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_CONTAINER = re.compile(rf"({_ISO}) (?:(stdout|stderr) ([FP]) )?")
_SHORT_ISO = re.compile(rf"({_ISO}) (?:\S{{1,255}} )?[\w.@/-]{{1,64}}\[\d+\]: ")
_RFC5424 = re.compile(
    rf"<\d{{1,3}}>1 ({_ISO}) \S{{1,255}} \S{{1,48}} \S{{1,128}} \S{{1,32}} "
    r'(?:-|(?:\[[^\]"\s]{1,64}(?: [^\]"=\s]{1,64}="(?:[^"\\]|\\.){0,400}+"){0,32}\]){1,8}) \ufeff?'
)
_SYSLOG = re.compile(
    r"(?:<\d{1,3}>)?([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)(?:\.\d{1,9})? (?:\S{1,255} )?"
    r"[\w.@/-]{1,64}(?:\[\d+\])?: "
)
_POD = re.compile(r"\[pod/[^\]\s]{1,300}\] ")
_COMPOSE = re.compile(r"[A-Za-z0-9][\w.-]{0,127} {1,128}\| ")
_SRUN = re.compile(r" {0,4}\d{1,5}: ")
_CHILD = re.compile(r"\[\d{1,7}\] ")
_PROCESS = re.compile(
    r"\(([A-Za-z][\w.:/-]{0,120})(?: rank=\d+)? pid=\d+(?:, ip=[0-9A-Fa-f.:]{2,45})?\) ?"
)
_PROCESS_NAME = re.compile(r"[A-Za-z][\w.:/-]{0,120}")
_KSERVE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}) \d+ kserve\.trace ")
_RAY_TAIL = re.compile(r" \[repeated \d{1,9}x across cluster\](?: \(Ray [^()]{1,400}\))?\s*\Z")
_PROGRESS = re.compile(r"[^'\"\\]{0,300}?\d(?:it|s|B)/(?:it|s)[^\]'\"\\]{0,60}\]")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_RAY_TAIL_CHARS: Final = 500
_MESSAGE_KEYS: Final = ("message", "msg", "event", "log")
_EVENT: Final = '"event": "request.'
"""Of SGLang's request log, whose lines are the record itself."""
_DENSE_EVENT: Final = '"event":"request.'
_EVENT_CHARS: Final = 200
_TIME_KEYS: Final = ("asctime", "timestamp", "time", "ts", "@timestamp")
_COMPOSE_CHARS: Final = 200
_MAX_SOURCES: Final = 4_096
_MAX_CONTAINERS: Final = 4
"""A container in a container, and what a tool put before each of them."""


@dataclass(slots=True)
class PeeledLine:
    """One line of a program, without what others put around it."""

    record: Record
    """The first physical record of the line: it gives offset and line, and takes the outcome."""
    text: str
    terminated: bool
    instant: IsoTime | None = None
    """Time with a zone, from the outermost layer that has one."""
    naive: IsoTime | None = None
    """Full date without a zone, from a JSON formatter or another logger around the program."""
    yearless: YearlessTime | None = None
    """Date without a year, from syslog or journald."""
    process: str | None = None
    """Innermost process prefix, such as `EngineCore_DP0`."""
    writer: str | None = None
    """The same with rank and process id, as printed: `VllmWorker rank=0 pid=31774`; from the second
    pod of a log on with the pod's number behind it."""
    is_formatted: bool = False
    """The text is a bare message: a JSON formatter or another logger took its prefix."""
    through_ray: bool = False
    document: str | None = None
    """The JSON object that the text was the message of."""


@dataclass(slots=True)
class _Pieces:
    record: Record
    texts: list[str]
    size: int
    instant: IsoTime | None


class LinePeeler:
    """Peels the lines of one file; gives every record that continues another one its outcome."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pending: dict[str, _Pieces] = {}
        self._sources: dict[str, int] = {}

    def feed(self, record: Record) -> PeeledLine | None:
        """The line that this record completes, or None: a piece, or a record without text."""
        text = record.data.decode("utf-8", errors="replace")
        if text[-1:] == "}" and not self._pending and _is_bare_event(text):
            return PeeledLine(record, text, record.terminated)  # nothing stands around it
        text = text.strip("\x00").removeprefix("\ufeff").rstrip("\r")
        if not text.strip():
            self._tally.ignore("padding")
            return None
        return self._contained(PeeledLine(record, text, record.terminated))

    def _contained(self, line: PeeledLine) -> PeeledLine | None:
        """The line out of its containers, one in the other, and out of all other layers."""
        streams, source = "", None
        for _ in range(_MAX_CONTAINERS):
            name = _peel_source(line)
            if name:
                source, streams = source or name, streams + name
            stream, is_partial = _peel_container(line)
            if not stream:
                break
            streams += stream
            if is_partial or streams in self._pending:
                joined = self._join(line, streams, is_partial)
                if joined is None:
                    return None
                line = joined
        peeled = peel(line)
        if source:
            self._tell_apart(peeled, source)
        return peeled

    def _tell_apart(self, line: PeeledLine, source: str) -> None:
        """Keep processes of several pods apart, which all have the same names and numbers."""
        if source not in self._sources and len(self._sources) < _MAX_SOURCES:
            self._sources[source] = len(self._sources)
        number = self._sources.get(source, _MAX_SOURCES)
        if number:
            line.writer = f"{line.writer or ''}@{number}"

    @property
    def is_joining(self) -> bool:
        """Whether a line is open whose next piece may come with any record."""
        return bool(self._pending)

    def flush(self) -> None:
        """Reject lines whose last piece never came; call once, at the end of the file."""
        for pieces in self._pending.values():
            self._tally.reject(pieces.record, "damaged_line", "the last piece is missing")
        self._pending.clear()

    def _join(self, line: PeeledLine, stream: str, is_partial: bool) -> PeeledLine | None:
        pieces = self._pending.get(stream)
        if pieces is None:
            pieces = _Pieces(line.record, [], 0, line.instant)
            self._pending[stream] = pieces
        else:
            self._tally.ignore("continued_piece")
        pieces.texts.append(line.text)
        pieces.size += len(line.text)
        if pieces.size > MAX_JOINED_CHARS:
            del self._pending[stream]
            self._tally.reject(pieces.record, "line_too_long", "joined from pieces")
            return None
        if is_partial:
            return None
        del self._pending[stream]
        text = "".join(pieces.texts)
        return PeeledLine(pieces.record, text, line.terminated, instant=pieces.instant)


def _peel_source(line: PeeledLine) -> str:
    """Peel the name that kubectl or docker compose put before the line; the name, if any."""
    text = line.text
    behind = text.find(" ", 1, _COMPOSE_CHARS) + 1
    if not text.startswith("[pod/") and (behind == 0 or text[behind : behind + 1] not in "| "):
        return ""
    at = _past_colours(text, 0)
    match = (_POD if text.startswith("[", at) else _COMPOSE).match(text, at)
    if match is None:
        return ""
    line.text = text[_past_colours(text, match.end()) :]
    return match[0]


def _past_colours(text: str, at: int) -> int:
    while text.startswith("\x1b", at) and (colour := _CSI.match(text, at)) is not None:
        at = colour.end()
    return at


def _peel_container(line: PeeledLine) -> tuple[str, bool]:
    """Peel docker's JSON or a container runtime's prefix; the stream, and whether more follows."""
    text = line.text
    if text.startswith('{"log":'):
        document = _json_object(text)
        log, time = document.get("log"), document.get("time")
        if isinstance(log, str) and "stream" in document:
            line.instant = line.instant or (parse_iso(time) if isinstance(time, str) else None)
            line.text = log.removesuffix("\n").rstrip("\r")
            return f"docker:{document['stream']}", not log.endswith("\n")
    if text[:2] == "20":
        match = _CONTAINER.match(text)
        is_journal = match is not None and "]: " in text and _SHORT_ISO.match(text) is not None
        if match is not None and not is_journal:
            line.instant = line.instant or parse_iso(match[1])
            line.text = text[match.end() :]
            return f"cri:{match[2]}", match[3] == "P"
    return "", False


def peel(line: PeeledLine) -> PeeledLine:
    """The same line after all other layers, outermost first; each may be there or not."""
    if "\r" in line.text:
        line.text = line.text[line.text.rindex("\r") + 1 :]  # a progress bar was redrawn in front
    if "\x1b" in line.text:
        line.text = _CSI.sub("", line.text)
    for _ in range(8):
        before = line.text
        _peel_once(line)
        if line.text is before:
            break
    if line.is_formatted and _has_prefix(line.text):
        line.is_formatted, line.document = False, None  # a collector's JSON around a whole line
    return line


def _has_prefix(text: str) -> bool:
    found = parse_prefix(text, has_instant=False)
    return found is not NONE and found.kind != "json"


def _peel_once(line: PeeledLine) -> None:
    text = line.text
    first = text[:1]
    if first == "(":
        match = _PROCESS.match(text)
        if match is not None:
            line.process = match[1]
            line.writer = match[0].rstrip(" ")[1:-1]
            line.through_ray |= "ip=" in match[0] or match[1].startswith("ServeReplica")
            line.text = text[match.end() :]
            if line.through_ray:
                _cut_ray_tail(line)
    elif first == "{":
        _peel_formatter(line)
    elif first == "[":
        is_pod = text.startswith("[pod/") and _cut(line, _POD)
        match = None if is_pod else _CHILD.match(text)
        if match is not None:
            line.process = f"{line.process or ''}{match[0].rstrip()}"
            line.text = text[match.end() :]
    elif first == " ":
        _cut(line, _SRUN)
    elif first == "<":
        _cut(line, _RFC5424) or _cut_syslog(line)
    elif first.isdigit():
        if not (_cut(line, _SHORT_ISO) or _cut(line, _SRUN)):
            match = _KSERVE.match(text)
            if match is not None:
                line.naive, line.is_formatted = parse_iso(match[1]), True
                line.text = text[match.end() :]
    elif first.isupper() and text[3:4] == " ":
        _cut_syslog(line)


def _cut_ray_tail(line: PeeledLine) -> None:
    start = max(0, len(line.text) - _RAY_TAIL_CHARS)
    tail = _RAY_TAIL.search(line.text, start)
    if tail is not None:
        line.text = line.text[: tail.start()]


def _cut(line: PeeledLine, layer: re.Pattern[str]) -> bool:
    match = layer.match(line.text)
    if match is None:
        return False
    if layer.groups and line.instant is None:
        line.instant = parse_iso(match[1])
    line.text = line.text[match.end() :]
    return True


def _cut_syslog(line: PeeledLine) -> bool:
    match = _SYSLOG.match(line.text)
    if match is None:
        return False
    month, day, clock = match.groups()
    at = _MONTHS.find(month)
    if at >= 0 and at % 3 == 0:
        line.yearless = yearless_stamp(f"{at // 3 + 1:02d}-{int(day):02d} {clock}")
    line.text = line.text[match.end() :]
    return True


def _is_bare_event(text: str) -> bool:
    return text[:1] == "{" and (
        text.find(_EVENT, 0, _EVENT_CHARS) >= 0 or text.find(_DENSE_EVENT, 0, _EVENT_CHARS) >= 0
    )


def _peel_formatter(line: PeeledLine) -> None:
    if _is_bare_event(line.text):
        return  # the event's name is no message: the fields beside it are the record
    document = _json_object(line.text)
    key = next((key for key in _MESSAGE_KEYS if key in document), "")
    message = document.get(key)
    if not isinstance(message, str):
        return
    stamp = next((document[key] for key in _TIME_KEYS if key in document), None)
    parsed = parse_iso(stamp) if isinstance(stamp, str) else None
    if parsed is not None and parsed.is_zoned:
        line.instant = line.instant or parsed
    else:
        line.naive = parsed
    name, number = document.get("processName"), document.get("process")
    if isinstance(name, str) and isinstance(number, int) and _PROCESS_NAME.fullmatch(name):
        line.process, line.writer = name, f"{name} pid={number}"
    is_raw = key == "log" and "stream" in document  # as docker and collectors keep it
    line.document = None if is_raw else line.text
    line.text, line.is_formatted = message.rstrip("\r\n"), not is_raw
    if "\x1b" in message:
        line.text = _CSI.sub("", line.text)


def _json_object(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}


def skip_progress_bar(text: str) -> str:
    """The text behind a progress bar that another thread printed in front of it, else the text."""
    head = text[:300]
    if "it/s" not in head and "s/it" not in head:
        return text
    match = _PROGRESS.match(text)
    return text[match.end() :] if match is not None else text
