r"""Chat messages as one text: what an engine would tokenise, as far as that can be known.

Engines render messages through the chat template of their LLM, which no log holds. Here every
message becomes `<role>\ncontent\n`: other bytes than the engine's, but equal where theirs are
equal, which is all that prefixes need. What a template puts around a message is not counted.
"""

from __future__ import annotations

from typing import Final

import msgspec

TEMPLATE: Final = "<role>\\ncontent\\n"
"""The template, as notes show it."""


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")
    tool_calls: msgspec.Raw = msgspec.Raw(b"")
    function_call: msgspec.Raw = msgspec.Raw(b"")
    reasoning_content: msgspec.Raw = msgspec.Raw(b"")
    tool_call_id: msgspec.Raw = msgspec.Raw(b"")


class _Part(msgspec.Struct, gc=False):
    text: str


_MESSAGES: Final = msgspec.json.Decoder(list[_Message])
_TEXT: Final = msgspec.json.Decoder(str)
_PARTS: Final = msgspec.json.Decoder(list[_Part])


def render_messages(messages: bytes | msgspec.Raw) -> bytes:
    """The text of a JSON list of chat messages (`role`, `content`, tool calls).

    Content that is text, or a list of parts with a text each, is that text; any other content
    (images, tool results) stands as the JSON that it is, so that it is part of the prefix.

    Raises:
        msgspec.DecodeError: not JSON, or no list of objects.
    """
    pieces: list[bytes] = []
    for message in _MESSAGES.decode(messages):
        pieces += (b"<", message.role.encode("utf-8", "surrogatepass"), b">\n")
        pieces += (_content(message.content), b"\n")
        others = (
            message.reasoning_content,
            message.tool_calls,
            message.function_call,
            message.tool_call_id,
        )
        pieces += (piece for other in others if (piece := bytes(other)) not in (b"", b"null"))
    return b"".join(pieces)


def _content(content: msgspec.Raw) -> bytes:
    data = bytes(content)
    if data[:1] == b'"':
        return _TEXT.decode(data).encode("utf-8", "surrogatepass")
    if data[:1] == b"[":
        try:
            parts = _PARTS.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return data
        return b"\n".join(part.text.encode("utf-8", "surrogatepass") for part in parts)
    return b"" if data == b"null" else data
