"""Lines of the llama.cpp server, parsed to what they say of one task; nothing of a prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from kvtrace.ingest.contract import LogLine
from kvtrace.ingest.textlog.fields import BadField, count_of, elapsed_ns, json_fields, key_values
from kvtrace.units import NS_PER_MS, NS_PER_S, NS_PER_US

OwnClock = Literal["utc", "relative"]
EventKind = Literal[
    "launched", "prompt", "hit", "prefill", "decode", "total", "header", "released", "cancelled"
]
_MAX_MESSAGE: Final = 16_384

_UPTIME = re.compile(r"([0-9]{1,7})\.([0-5][0-9])\.([0-9]{3})\.([0-9]{3}) [DIWE] ")
_SLOT = re.compile(r"slot +\w{1,40}: id +(-?[0-9]{1,6}) \| task (-?[0-9]{1,9}) \| ?")
_SERVER = re.compile(r"(?:srv|que|res) +\w{1,40}: ?")
_KEY_VALUE = re.compile(r"(?:VERB|INFO|WARN|ERR|ERROR) \[ *\w{1,60}\] ")
_BUILD = re.compile(r"build: ([0-9]{1,7}) \([0-9a-f]{6,12}\) with .{1,300}")
_PROMPT = re.compile(
    r"new prompt, n_ctx_slot = [0-9]{1,9}, n_keep = -?[0-9]{1,9},"
    r" (?:n_prompt_tokens|task\.n_tokens) = ([0-9]{1,12})(?:, .{0,200})?"
)
_TRUNCATED = re.compile(r"input truncated, .{0,120}?\bn_prompt_tokens = ([0-9]{1,12})")
_HIT = re.compile(
    r"(?:kv cache rm|(?:cached )?n_tokens = [0-9]{1,12}, memory_seq_rm) \[([0-9]{1,12}), end\)"
)
_HIT_STARTS: Final = ("kv cache rm [", "cached n_tokens = ", "n_tokens = ")
_TIMING = re.compile(
    r"(prompt eval|generation eval|eval|total) time *= +([0-9]{1,12}\.[0-9]{1,6}) ms"
    r"(?: / +([0-9]{1,12}) (?:tokens?|runs?))?(?: *\([^()]{1,200}\))?"
)
_TIMING_STARTS: Final = ("prompt eval time", "generation eval time", "eval time ", "total time ")
_CANCEL = re.compile(r"cancel task, id_task = ([0-9]{1,9})")
_TIMING_KINDS: Final[dict[str, EventKind]] = {
    "prompt eval": "prefill",
    "generation eval": "decode",
    "eval": "decode",
    "total": "total",
}


@dataclass(frozen=True, slots=True)
class Event:
    """What one line says of one task."""

    kind: EventKind
    slot: int | None
    task: int | None
    tokens: int | None = None
    """Prompt tokens, cached tokens, or the tokens that a timing counts."""
    elapsed_ns: int | None = None
    is_child: bool = False


@dataclass(frozen=True, slots=True)
class ServerLine:
    """A line of the server: who wrote it, when, and its event, if it has one that is wanted."""

    process: str
    event: Event | None = None
    build: str | None = None
    own: tuple[OwnClock, int] | None = None
    """The clock of the line itself, and its time in ns."""


class DamagedEvent(BadField):
    """A line of a known kind that is not whole; says of which task, if that much is known."""

    def __init__(self, what: str, process: str, slot: int | None, task: int | None) -> None:
        super().__init__(what)
        self.process = process
        self.slot = slot
        self.task = task


def parse_line(line: LogLine) -> ServerLine | None:
    """The line, if the server wrote it, else None.

    Raises:
        BadField: it is the server's and not whole.
    """
    text = line.text
    process = line.process or ""
    if line.document is not None:
        return _json_line(line, process)
    first = text[:1]
    if first in "VIWE" and _KEY_VALUE.match(text) is not None:
        return _key_value_line(line, text, process)
    own: tuple[OwnClock, int] | None = None
    if first.isdigit():
        uptime = _UPTIME.match(text)
        if uptime is None:
            return None
        minutes, seconds, millis, micros = (int(part) for part in uptime.groups())
        ns = (minutes * 60 + seconds) * NS_PER_S + millis * NS_PER_MS + micros * NS_PER_US
        own, text = ("relative", ns), text[uptime.end() :]
    return _plain_line(line, text, process, own)


def _plain_line(
    line: LogLine, text: str, process: str, own: tuple[OwnClock, int] | None
) -> ServerLine | None:
    """A line of 2025 or later."""
    if text.startswith("slot "):
        head = _SLOT.match(text)
        if head is None:
            return None
        slot, task = int(head[1]), int(head[2])
        message = text[head.end() :]
        event = _event(line, message, process, slot, task, {})
        if event is None and not message.strip() and "print_timing" in head[0]:
            event = Event("header", slot, task)
        return ServerLine(process, event, own=own)
    if text.startswith(("srv ", "que ", "res ")):
        head = _SERVER.match(text)
        if head is None:
            return None
        cancel = _CANCEL.fullmatch(text, head.end())
        event = None if cancel is None else Event("cancelled", None, int(cancel[1]))
        return ServerLine(process, event, own=own)
    if text.startswith("build: "):
        build = _BUILD.fullmatch(text)
        return None if build is None else ServerLine(process, build=f"b{build[1]}", own=own)
    stripped = text.lstrip(" ")
    if stripped.startswith(_TIMING_STARTS):
        event = _event(line, stripped, process, None, None, {})
        return None if event is None else ServerLine(process, event, own=own)
    return None


def _key_value_line(line: LogLine, text: str, process: str) -> ServerLine:
    """A line of 2024."""
    head = _KEY_VALUE.match(text)
    message, bar, tail = text[head.end() if head is not None else 0 :].partition(" | ")
    fields = key_values(tail)
    if not bar or fields is None or (not line.terminated and tail[-1:] != '"'):
        raise DamagedEvent("pairs behind the message", process, None, None)
    return _fielded(line, message.strip(), fields, process)


def _json_line(line: LogLine, process: str) -> ServerLine | None:
    """A line of 2024 with --log-format json."""
    document = line.document or ""
    if '"tid":' not in document[:300] or len(document) > _MAX_MESSAGE:
        return None
    fields = json_fields(document)
    if "tid" not in fields or "timestamp" not in fields:
        return None
    return _fielded(line, line.message.strip(), fields, process)


def _fielded(line: LogLine, message: str, fields: dict[str, str], process: str) -> ServerLine:
    slot = count_of("id_slot", fields.get("id_slot"))
    task = count_of("id_task", fields.get("id_task") if fields.get("id_task") != "-1" else None)
    flags: list[str] = []
    epoch_ns = elapsed_ns("timestamp", fields.get("timestamp"), flags)
    event = _event(line, message, process, slot, task, fields)
    if event is None and message == "slot is processing task":
        event = Event("launched", slot, task)
    elif event is None and message == "slot released":
        event = Event("released", slot, task)
    build = fields.get("build") if message == "build info" else None
    own: tuple[OwnClock, int] | None = None if epoch_ns is None else ("utc", epoch_ns)
    return ServerLine(process, event, build=f"b{build}" if build else None, own=own)


def _event(
    line: LogLine,
    message: str,
    process: str,
    slot: int | None,
    task: int | None,
    fields: dict[str, str],
) -> Event | None:
    """The event of a message; None if it has none that is wanted.

    Raises:
        DamagedEvent: it starts as one and does not end as one.
    """
    message = message.strip()
    found: Event | None = None
    is_known = True
    if message.startswith("processing task"):
        found = Event("launched", slot, task, is_child=message.endswith("is_child = 1"))
    elif message.startswith("new prompt, "):
        match = _whole(_PROMPT, message)
        found = Event("prompt", slot, task, int(match[1])) if match is not None else None
    elif message.startswith("input truncated, "):
        match = _whole(_TRUNCATED, message)
        found = Event("prompt", slot, task, int(match[1])) if match is not None else None
        is_known = match is not None
    elif message.startswith(_HIT_STARTS):
        found = _hit(message, slot, task, fields)
    elif message.startswith(_TIMING_STARTS):
        found = _timing(message, slot, task, fields)
    elif message.startswith("stop processing"):
        found = Event("released", slot, task)
    else:
        is_known = False
    is_cut = not line.terminated and line.document is None and message[-1:].isdigit()
    if is_known and (found is None or is_cut):
        raise DamagedEvent("a line of a task", process, slot, task)
    return found


def _whole(pattern: re.Pattern[str], message: str) -> re.Match[str] | None:
    return pattern.fullmatch(message) if len(message) < _MAX_MESSAGE else None


def _hit(message: str, slot: int | None, task: int | None, fields: dict[str, str]) -> Event | None:
    """Tokens that stay in the cache; the lines of 2024 print the number among the pairs."""
    if message == "kv cache rm [p0, end)":
        cached = count_of("p0", fields.get("p0"))
        return None if cached is None else Event("hit", slot, task, cached)
    match = _whole(_HIT, message)
    return None if match is None else Event("hit", slot, task, int(match[1]))


def _timing(
    message: str, slot: int | None, task: int | None, fields: dict[str, str]
) -> Event | None:
    match = _whole(_TIMING, message)
    if match is None:
        return None
    kind = _TIMING_KINDS[match[1]]
    counted = {"prefill": "n_prompt_tokens_processed", "decode": "n_decoded"}.get(kind, "")
    tokens = count_of(counted, fields.get(counted, match[3]))
    if tokens is None and kind != "total":
        return None
    return Event(kind, slot, task, tokens, elapsed_ns("time", match[2], [], power=-3))
