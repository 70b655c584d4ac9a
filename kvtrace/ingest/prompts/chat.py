r"""Chat messages as one text: what an engine would tokenise, as far as that can be known.

Engines render messages through the chat template of their LLM, which no log holds. Here every
message becomes `<role>\ncontent\n`: other bytes than the engine's, but equal where theirs are
equal, which is all that prefixes need. What a template puts around a message is not counted.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

TEMPLATE: Final = "<role>\\ncontent\\n"
"""The template, as notes show it."""
_MEDIA: Final = ("image", "audio", "video", "file", "document", "input_image", "input_audio")
"""Starts of the types of parts that are no text."""
_NESTED: Final = "tool_result"
_CACHE_MARK: Final = b'"cache_control"'
_DIGEST_BYTES: Final = 16
_NOTHING: Final = (b"", b"null")


class _Beside(msgspec.Struct, gc=False):
    """What a message has beside its content."""

    role: str = ""
    tool_calls: msgspec.Raw | UnsetType = UNSET
    function_call: msgspec.Raw | UnsetType = UNSET
    reasoning_content: msgspec.Raw | UnsetType = UNSET
    tool_call_id: msgspec.Raw | UnsetType = UNSET


class _TextMessage(_Beside, gc=False):
    content: str | None = None


class _Message(_Beside, gc=False):
    content: msgspec.Raw = msgspec.Raw(b"")


class _Part(msgspec.Struct, gc=False):
    text: str


class _OtherPart(msgspec.Struct, gc=False):
    type: str = ""
    tool_use_id: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")


_TEXT_MESSAGES: Final = msgspec.json.Decoder(list[_TextMessage])
_MESSAGES: Final = msgspec.json.Decoder(list[_Message])
_TEXT: Final = msgspec.json.Decoder(str)
_PART: Final = msgspec.json.Decoder(_Part)
_PARTS: Final = msgspec.json.Decoder(list[_Part])
_OTHER_PART: Final = msgspec.json.Decoder(_OtherPart)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
Fields = dict[str, msgspec.Raw]
_OBJECTS: Final[msgspec.json.Decoder[Fields | list[Fields]]] = msgspec.json.Decoder(
    Fields | list[Fields]
)


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """Messages as text."""

    text: bytes
    media: int
    """Images, sounds and files among them; each stands as a digest of what it is."""


def render_messages(messages: bytes | msgspec.Raw) -> bytes:
    """The text of `render_chat`.

    Raises:
        msgspec.DecodeError: not JSON, or no list of objects.
    """
    return render_chat(messages).text


def render_chat(messages: bytes | msgspec.Raw) -> Rendered:
    """The text of a JSON list of chat messages (`role`, `content`, tool calls).

    Content that is text, or a list of parts with a text each, is that text. Of other parts images
    and the like become a digest, so that equal ones keep a prefix and others end it; the rest
    (calls of tools) stands as the JSON that it is, without marks of where a cache may end.

    Raises:
        msgspec.DecodeError: not JSON, or no list of objects.
    """
    try:
        texts = _TEXT_MESSAGES.decode(messages)
    except msgspec.ValidationError:
        return _render_any(messages)
    said = "".join(
        f"<{message.role}>\n{message.content or ''}\n{_beside(message).decode()}"
        for message in texts
    )
    return Rendered(said.encode("utf-8", "surrogatepass"), 0)


def _render_any(messages: bytes | msgspec.Raw) -> Rendered:
    """Messages some of whose contents are no text."""
    pieces: list[bytes] = []
    media = 0
    for message in _MESSAGES.decode(messages):
        text, held = render_content(message.content)
        media += held
        pieces += (b"<", message.role.encode("utf-8", "surrogatepass"), b">\n", text, b"\n")
        pieces.append(_beside(message))
    return Rendered(b"".join(pieces), media)


def _beside(message: _Beside) -> bytes:
    """The other parts of a message that a model reads, as the JSON that they are."""
    calls, call = message.tool_calls, message.function_call
    thoughts, answers = message.reasoning_content, message.tool_call_id
    if calls is UNSET and call is UNSET and thoughts is UNSET and answers is UNSET:
        return b""
    others = (thoughts, calls, call, answers)
    pieces = (bytes(other) for other in others if other is not UNSET)
    return b"".join(piece for piece in pieces if piece != b"null")


def render_content(content: bytes | msgspec.Raw) -> tuple[bytes, int]:
    """(the text of a message's content, parts in it that are no text)."""
    data = bytes(content)
    if data[:1] == b'"':
        return _TEXT.decode(data).encode("utf-8", "surrogatepass"), 0
    if data[:1] == b"[":
        try:
            parts = _PARTS.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return _mixed(data)
        return b"\n".join(part.text.encode("utf-8", "surrogatepass") for part in parts), 0
    return (b"", 0) if data in _NOTHING else (plain_json(data), 0)


def plain_json(data: bytes) -> bytes:
    """JSON without spaces, and without `cache_control`, which clients move from turn to turn.

    The marks are taken from an object, or from the objects of a list.
    """
    try:
        if _CACHE_MARK in data:
            data = msgspec.json.encode(_unmarked(data))
        return msgspec.json.format(data, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return data


def _unmarked(data: bytes) -> Fields | list[Fields]:
    decoded = _OBJECTS.decode(data)
    for fields in decoded if isinstance(decoded, list) else (decoded,):
        fields.pop("cache_control", None)
    return decoded


def _mixed(data: bytes) -> tuple[bytes, int]:
    try:
        items = _ITEMS.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data, 0
    pieces: list[bytes] = []
    media = 0
    for item in items:
        piece, held = _part(bytes(item))
        pieces.append(piece)
        media += held
    return b"\n".join(pieces), media


def _part(data: bytes) -> tuple[bytes, int]:
    try:
        return _PART.decode(data).text.encode("utf-8", "surrogatepass"), 0
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        part = _OTHER_PART.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data, 0
    if part.type.startswith(_MEDIA):
        digest = hashlib.blake2b(plain_json(data), digest_size=_DIGEST_BYTES).hexdigest()
        return f"<medium {digest}>".encode(), 1
    if part.type == _NESTED:
        text, media = _nested(bytes(part.content))
        return b"<" + part.tool_use_id.encode("utf-8", "surrogatepass") + b">\n" + text, media
    return plain_json(data), 0


def _nested(content: bytes) -> tuple[bytes, int]:
    """The result of a tool, which may hold parts of its own (and no results of tools)."""
    if content[:1] != b"[" or b'"tool_result"' in content:
        return (content, 0) if content[:1] != b'"' else render_content(content)
    return render_content(content)
