"""Messages of vLLM about single requests, parsed from their text; no prompt text leaves here.

`Received` prints the prompt as a Python repr, and a prompt may imitate any message. So the repr is
scanned from its opening to its closing quote, and the rest is read from its right end.
"""

from __future__ import annotations

import ast
import re
from array import array
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from kvtrace.ingest.blocks.tokens import parse_token_ids
from kvtrace.ingest.values.pyrepr import string_end
from kvtrace.schema.manifest import Status

EventKind = Literal["received", "details", "added", "ended", "response", "response_details"]
MAX_ID_CHARS = 512


class RequestEvent(msgspec.Struct, frozen=True, gc=False):
    """What one message says of one or more requests."""

    kind: EventKind
    request_ids: tuple[str, ...]
    status: Status | None = None
    """Of an end: ok, cancelled or error."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    token_ids: list[int] | None = None
    """Of the prompt, if they are all printed."""
    block_keys: array[int] | None = None
    """Keys of the prompt's blocks for a request without adapter, where they are made already."""
    adapter: str | None = None
    is_pooling: bool = False
    is_truncated: bool = False
    """Prompt and ids were cut by --max-log-len, so the count of ids is a lower bound."""
    features: tuple[str, ...] = ()


class DamagedMessage(ValueError):
    """The message starts as a known one and does not end as one."""


class IgnoredMessage(Exception):
    """The message is known and carries nothing wanted; the text is the tally's reason."""


_PARAMS = re.compile(r", (sampling_params|params): ")
_LORA_NAME = re.compile(r"LoRARequest\(lora_name='([^'\\]{1,200})'")
_EMBEDS = re.compile(
    r", prompt_embeds shape: (?:None|[\w.]{0,20}\(?\[[\d, ]*\]\)?|\([\d, ]*\))", re.ASCII
)
_ADAPTER_REQUEST = ", prompt_adapter_request: "
_RESPONSE_MODE = re.compile(r"(.*?)(?: \((streaming delta|streaming complete)\))?", re.DOTALL)
_FINISH = re.compile(r", finish_reason: (\w{1,40})\.?")
_FAILED = re.compile(r"failed(?: \([\w .-]{1,60}\)| due to .{1,200})?\.?")
_MAX_ABORTED: Final = 65_536
"""No server runs and queues more requests than it could abort at once."""
_FIRST_FIELDS: Final = ("prompt", "params", "sampling_params")
_MAX_NAME_CHARS: Final = 20
_LONGEST_ESCAPE: Final = 10
"""Characters of `\\U0001f600`, which stands for one."""


def parse_request_message(message: str) -> RequestEvent | None:
    """The event of a message about requests; None if it is no such message.

    Raises:
        DamagedMessage: it is cut or spliced.
        IgnoredMessage: it carries nothing wanted.
    """
    read = _READERS.get(message[:8])
    return None if read is None else read(message)


def _added(message: str) -> RequestEvent | None:
    ids = _single(message, "Added request ")
    return None if ids is None else RequestEvent("added", ids, features=("added",))


def _finished(message: str) -> RequestEvent | None:
    ids = _single(message, "Finished request ")
    if ids is None:
        return None
    return RequestEvent("ended", ids, status="ok", features=("finished",))


def _single(message: str, start: str) -> tuple[str] | None:
    """The id of `… request ID.`; None if the message is another one."""
    if not message.startswith(start):
        return None
    if message[-1] != ".":
        raise DamagedMessage(start.strip())
    return (_checked_id(message[len(start) : -1]),)


def _checked_id(text: str) -> str:
    if not 0 < len(text) <= MAX_ID_CHARS or text.split() != [text]:
        raise DamagedMessage("request id")
    return text


def _aborted(message: str) -> RequestEvent | None:
    is_list = message.startswith("Aborted request(s) ")
    if not is_list and not message.startswith("Aborted request "):
        return None
    if message[-1] != "." or message.count(",") > _MAX_ABORTED:
        raise DamagedMessage("Aborted request")
    ids = message[len("Aborted request(s) " if is_list else "Aborted request ") : -1].split(",")
    return RequestEvent(
        "ended",
        tuple(_checked_id(request_id.strip()) for request_id in ids),
        status="cancelled",
        features=("aborted_list",) if is_list else (),
    )


def _received(message: str) -> RequestEvent | None:
    if not message.startswith("Received request "):
        return None
    request_id, name, at = _head(message, len("Received request "))
    features: list[str] = []
    prompt_repr = ""
    if name == "prompt":
        end = string_end(message, at)
        match = _PARAMS.match(message, end) if end is not None else None
        if end is None or match is None:
            raise DamagedMessage("prompt of Received request")
        prompt_repr = message[at:end]
        features.append("received_prompt")
        name, at = match[1], match.end()
    else:
        features.append("received_bare")
    if name == "sampling_params":
        features.append("sampling_params")
    tail = message[at:]
    if not tail.endswith(".") or ", lora_request: " not in tail:
        raise DamagedMessage("tail of Received request")
    token_ids, adapter = _received_tail(tail[:-1], features, has_prompt=bool(prompt_repr))
    count = None if token_ids is None else len(token_ids)
    is_cut = is_truncated(prompt_repr, count)
    return RequestEvent(
        "received",
        (request_id,),
        prompt_tokens=count,
        token_ids=None if is_cut else token_ids,
        adapter=adapter,
        is_pooling=tail.startswith("PoolingParams("),
        is_truncated=is_cut,
        features=tuple(features),
    )


def _received_tail(
    tail: str, features: list[str], *, has_prompt: bool
) -> tuple[list[int] | None, str | None]:
    """(token ids, adapter) from what stands behind the prompt, read from the right."""
    before, _, lora = tail.rpartition(", lora_request: ")
    if _ADAPTER_REQUEST in lora:
        lora = lora[: lora.index(_ADAPTER_REQUEST)]
        features.append("prompt_adapter")
    name = _LORA_NAME.match(lora)
    adapter = name[1] if name is not None else None
    if not has_prompt:
        return None, adapter
    embeds = before.rfind(", prompt_embeds shape: ")
    if embeds >= 0 and _EMBEDS.fullmatch(before, embeds):
        before = before[:embeds]
        features.append("embeds")
    else:
        features.append("no_embeds")
    return _id_list(before, ", prompt_token_ids: "), adapter


def _id_list(text: str, name: str) -> list[int] | None:
    """The list of ids that ends the text; None where `None` stands there."""
    at = text.rfind(name)
    if at < 0:
        raise DamagedMessage("token ids")
    listed = text[at + len(name) :]
    if listed == "None":
        return None
    ids = parse_token_ids(listed)
    if ids is None:
        raise DamagedMessage("token ids")
    return ids


def is_truncated(prompt_repr: str, token_count: int | None) -> bool:
    """Whether --max-log-len cut both: then as many characters as ids are printed."""
    chars = len(prompt_repr) - 2
    if not token_count or chars < token_count or prompt_repr[0] not in "'\"":
        return False
    escapes = prompt_repr.count("\\")
    if not escapes:
        return chars == token_count
    if chars - (_LONGEST_ESCAPE - 1) * escapes > token_count:
        return False
    try:
        prompt = ast.literal_eval(prompt_repr)
    except (ValueError, SyntaxError, MemoryError):
        return False
    return isinstance(prompt, str) and len(prompt) == token_count


def _head(message: str, start: int) -> tuple[str, str, int]:
    """(id, name of the first field, where its value starts) of `… ID: name: value`."""
    at = message.find(": ", start, start + MAX_ID_CHARS + 2)  # an id has no blank
    name_end = message.find(": ", at + 2, at + 2 + _MAX_NAME_CHARS)
    name = message[at + 2 : name_end] if 0 < at < name_end else ""
    if name not in _FIRST_FIELDS:
        raise DamagedMessage("head of the message")
    return _checked_id(message[start:at]), name, name_end + 2


def _request(message: str) -> RequestEvent | None:
    """`Request ID details: …`, `Request ID JSON body: …`, `Request ID aborted.`, `… failed.`"""
    request_id, _, rest = message[len("Request ") :].partition(" ")
    if rest.startswith("JSON body: "):
        raise IgnoredMessage("request_body")
    if rest.startswith("details: prompt: "):
        return _details(_checked_id(request_id), rest, len("details: prompt: "))
    if rest == "aborted.":
        return RequestEvent("ended", (_checked_id(request_id),), status="cancelled")
    if len(rest) < 300 and _FAILED.fullmatch(rest):
        return RequestEvent("ended", (_checked_id(request_id),), status="error")
    return None


def _details(request_id: str, rest: str, at: int) -> RequestEvent:
    end = string_end(rest, at)
    if end is None or not rest.endswith("."):
        raise DamagedMessage("prompt of request details")
    tail = rest[end:-1]
    embeds = tail.rfind(", prompt_embeds shape: ")
    if embeds >= 0:
        tail = tail[:embeds]
    token_ids = _id_list(tail, ", prompt_token_ids: ")
    count = None if token_ids is None else len(token_ids)
    is_cut = is_truncated(rest[at:end], count)
    return RequestEvent(
        "details",
        (request_id,),
        prompt_tokens=count,
        token_ids=None if is_cut else token_ids,
        is_truncated=is_cut,
        features=("details",),
    )


def _response(message: str) -> RequestEvent | None:
    if not message.startswith("Generated response "):
        return None
    start = len("Generated response ")
    limit = start + MAX_ID_CHARS + 60
    details = message.find(" details: output_token_ids: ", start, limit)
    output = message.find(": output: ", start, limit)
    if details >= 0 and (output < 0 or details < output):
        request_id, _ = _response_id(message[start:details])
        listed = message[details + len(" details: output_token_ids: ") :]
        count = _length(listed.removesuffix("."))
        return RequestEvent(
            "response_details", (request_id,), output_tokens=count, features=("response_details",)
        )
    end = string_end(message, output + len(": output: ")) if output >= 0 else None
    if end is None:
        raise DamagedMessage("output of the response")
    request_id, mode = _response_id(message[start:output])
    if mode == "streaming delta":
        raise IgnoredMessage("response_delta")
    return _response_tail(request_id, message[end:])


def _length(listed: str) -> int:
    """How many ids the list repr holds."""
    ids = parse_token_ids(listed)
    if ids is None:
        raise DamagedMessage("token ids of the response")
    return len(ids)


def _response_id(text: str) -> tuple[str, str | None]:
    match = _RESPONSE_MODE.fullmatch(text)
    if match is None:
        raise DamagedMessage("response id")
    return _checked_id(match[1]), match[2]


def _response_tail(request_id: str, tail: str) -> RequestEvent:
    at = tail.rfind(", finish_reason: ")
    match = _FINISH.fullmatch(tail, at) if at >= 0 else None
    if match is None:
        raise DamagedMessage("finish reason of the response")
    count = None
    if at > 0:
        ids = tail[:at].removeprefix(", output_token_ids: ")
        count = None if ids == "None" else _length(ids)
    statuses: dict[str, Status] = {"abort": "cancelled", "error": "error"}
    return RequestEvent(
        "response",
        (request_id,),
        status=statuses.get(match[1], "ok"),
        output_tokens=count,
        features=("response",),
    )


_READERS: Final[dict[str, Callable[[str], RequestEvent | None]]] = {
    # the first eight characters of a message: its reader
    "Received": _received,
    "Added re": _added,
    "Finished": _finished,
    "Aborted ": _aborted,
    "Generate": _response,
    "Request ": _request,
}
