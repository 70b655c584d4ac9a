"""SGLang's request lines, as Python reprs and as JSON events, down to what they say in numbers.

`Receive` and `Finish` print prompts and answers, which may imitate any field. So fields are looked
for outside quotes only, and counts in the last `meta_info` outside quotes.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, Literal

import msgspec

from kvtrace.ingest.families.sglang_meta import MetaInfo, adapter_name, seconds_ns
from kvtrace.ingest.values.jsonfields import decode_json
from kvtrace.ingest.values.pyrepr import outside_pattern, repr_to_json, string_end

EventKind = Literal["received", "finished"]
MAX_ID_CHARS: Final = 512
ROUTING_HEADER: Final = "x-smg-routing-key"
_META: Final = r"'meta_info': \{"
_TO_META = outside_pattern(_META)
_META_CHARS: Final = len("'meta_info': {")
_FIELD: Final = (
    r"[(, ](?:rid|input_ids|received_time|lora_path|routing_key|session_id|conversation_id"
    r"|headers)="
)
_TO_FIELD = outside_pattern(_FIELD, "(, ")
_FIELD_NAME = re.compile(r"[(, ]([a-z_]{1,20})=")
_NUMBER = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,20})?(?=[,)])")
_ID_LIST = re.compile(r"(\[[0-9, ]*+\])[,)]")
_ROUTING_KEY = re.compile(r"\{'" + ROUTING_HEADER + r"': (?=['\"])")
REQUEST_STARTS: Final = ("Receive: obj=", "Finish: obj=", "Receive OpenAI: ")
_HEADS: Final = {"Receive: obj=": "received", "Finish: obj=": "finished"}
_MAX_FIELDS: Final = 64
_MAX_HEADERS: Final = 2_000


class DamagedRequest(ValueError):
    """The line starts as a request line and does not end as one."""


class IgnoredRequest(Exception):
    """The line is known and carries nothing wanted; the text is the tally's reason."""


class RequestEvent(msgspec.Struct, gc=False):
    """What one line says of one request."""

    kind: EventKind
    request_id: str | None
    is_batch: bool = False
    """The line is of a call with several prompts; it tells of the first."""
    session_id: str | None = None
    adapter: str | None = None
    received_at_ns: int | None = None
    """The request's own time of arrival, in ns since the epoch."""
    stamp: str | None = None
    """Local time of a JSON event, as written."""
    meta: MetaInfo | None = None
    token_ids: msgspec.Raw | str = ""
    """The list of the prompt's ids as written; empty or cut where it is not whole."""


_NO_IDS: Final = msgspec.Raw(b"")


class _Output(msgspec.Struct, gc=False):
    meta_info: MetaInfo


class _Input(msgspec.Struct, gc=False):
    input_ids: msgspec.Raw = _NO_IDS
    lora_path: object = None
    session_id: object = None
    conversation_id: object = None
    routing_key: object = None


class _Headers(msgspec.Struct, gc=False, rename={"routing_key": "x-smg-routing-key"}):
    routing_key: object = None


class _Event(msgspec.Struct, gc=False):
    event: str
    timestamp: object = None
    rid: object = None
    obj: _Input | None = None
    headers: _Headers | None = None
    out: _Output | None = None


_OUTPUT: Final = msgspec.json.Decoder(_Output, strict=False)
_EVENT: Final = msgspec.json.Decoder(_Event, strict=False)


def looks_like_event(text: str) -> bool:
    """Whether a JSON line is an event of SGLang's request log."""
    return text.find('"event": "request.', 0, 200) >= 0 or (
        text.find('"event":"request.', 0, 200) >= 0
    )


def parse_event(text: str) -> RequestEvent:
    """The request of one JSON event.

    Raises:
        msgspec.DecodeError: no JSON, or a field of the wrong type.
        IgnoredRequest: it carries nothing wanted.
        DamagedRequest: a field that must be there is not.
    """
    raw = _decoded_event(text)
    if raw.event == "request.finished":
        if raw.out is None:
            raise IgnoredRequest("finish_without_counts")
        meta = raw.out.meta_info
        kind: EventKind = "finished"
    elif raw.event == "request.received":
        meta, kind = None, "received"
    else:
        raise IgnoredRequest("request_body")
    rid, told, stamp = raw.rid, raw.obj, raw.timestamp
    event = RequestEvent(kind, None, meta=meta, stamp=stamp if isinstance(stamp, str) else None)
    if isinstance(rid, list):
        event.is_batch = True
        rid = rid[0] if rid else None
    event.request_id = checked_id(rid if meta is None or meta.id is None else meta.id)
    if told is not None:
        if told.lora_path is not None:
            event.adapter = adapter_name(told.lora_path)
        event.session_id = _session(told)
        event.token_ids = told.input_ids
    routing_key = None if raw.headers is None else raw.headers.routing_key
    if routing_key and isinstance(routing_key, str):
        event.session_id = routing_key
    return event


def _decoded_event(text: str) -> _Event:
    try:
        return _EVENT.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return decode_json(_EVENT, text.encode("utf-8", "surrogatepass"))


def _session(told: _Input) -> str | None:
    found = told.routing_key or told.session_id or told.conversation_id
    return found if isinstance(found, str) else None


def checked_id(value: object) -> str:
    """The request id.

    Raises:
        DamagedRequest: it is none.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS:
        return value
    raise DamagedRequest("request id")


def parse_text(message: str) -> RequestEvent:
    """The request of one `Receive: obj=` or `Finish: obj=` message.

    Raises:
        msgspec.DecodeError: `meta_info` is no dict of known values, or a field of the wrong type.
        IgnoredRequest: it carries nothing wanted.
        DamagedRequest: it is cut or spliced.
    """
    head = next((start for start in _HEADS if message.startswith(start)), None)
    if head is None:
        if message.startswith("Receive OpenAI: "):
            raise IgnoredRequest("request_body")
        raise DamagedRequest("head of the request line")
    if head.startswith("Receive"):
        _scan(message, len(head))  # for quotes that never close
        has_headers = message.endswith("}") and ", headers={" in message[-_MAX_HEADERS:]
        if not has_headers and not message.endswith(")"):
            raise DamagedRequest("end of the request's repr")
        event = RequestEvent("received", None)
        _fill_fields(event, message, len(message))
    else:
        event = _finished(message, len(head))
    if event.kind == "received":
        event.request_id = checked_id(event.request_id)
    return event


def _scan(message: str, start: int) -> int | None:
    """Where the last `meta_info` outside quotes starts; None if there is none.

    Raises:
        DamagedRequest: a quote never closes.
    """
    found: int | None = None
    at = start
    while True:
        match = _TO_META.match(message, at)
        end = match.end() if match is not None else at
        if end == len(message):
            return found
        if not message.startswith("'meta_info': {", end):
            raise DamagedRequest("an open quote")
        found = end
        at = end + _META_CHARS


def _finished(message: str, start: int) -> RequestEvent:
    at = _scan(message, start)
    if at is None:
        if ", out={" in message or not message.endswith((")", "None")):
            raise DamagedRequest("meta_info")
        raise IgnoredRequest("finish_without_counts")
    if not message.endswith("}"):
        raise DamagedRequest("end of meta_info")
    meta = _OUTPUT.decode(repr_to_json("{" + message[at:])).meta_info
    event = RequestEvent("finished", None, meta=meta)
    _fill_fields(event, message, at)
    if meta.id is not None:
        event.request_id = checked_id(meta.id)
    event.request_id = checked_id(event.request_id)
    return event


def _fill_fields(event: RequestEvent, message: str, end: int) -> None:
    """Fields of the request's own repr, which stands before `end`."""
    at = 0
    for _ in range(_MAX_FIELDS):
        match = _TO_FIELD.match(message, at, end)
        at = match.end() if match is not None else end
        name = _FIELD_NAME.match(message, at, end)
        if name is None:
            return
        at = name.end()
        _fill_field(event, name[1], message, at)


def _fill_field(event: RequestEvent, name: str, message: str, at: int) -> None:
    if name == "rid":
        if message.startswith("[", at):
            event.is_batch = True
            at += 1
        event.request_id = event.request_id or _quoted(message, at)
    elif name == "input_ids":
        listed = _ID_LIST.match(message, at)
        event.token_ids = "" if listed is None else listed[1]
    elif name == "received_time":
        number = _NUMBER.match(message, at)
        if number is not None and event.received_at_ns is None:
            event.received_at_ns = seconds_ns(name, Decimal(number.group()))
    elif name == "lora_path":
        event.adapter = event.adapter or adapter_name(_quoted(message, at))
    elif name == "headers":
        key = _ROUTING_KEY.match(message, at)
        if key is not None:
            event.session_id = _quoted(message, key.end())
    elif event.session_id is None:
        event.session_id = _quoted(message, at)


def _quoted(message: str, at: int) -> str | None:
    """The quoted text that starts here, if it is one of the length of a name."""
    if message[at : at + 1] not in ("'", '"'):
        return None
    end = string_end(message, at)
    if end is None or end - at > 2 * MAX_ID_CHARS:
        return None
    decoded = msgspec.json.decode(repr_to_json(message[at:end]))
    return decoded if isinstance(decoded, str) and decoded else None
