"""The prompt of a call in the attributes of its span or of the span's events.

Attributes read from the OpenTelemetry GenAI conventions (`gen_ai.input.messages`, earlier
`gen_ai.prompt` on the event `gen_ai.content.prompt`), OpenLLMetry (`gen_ai.prompt.0.content`) and
OpenInference (`llm.input_messages.0.message.content`, `input.value`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kvtrace.ingest.prompts.bodies import Body

_MESSAGES: Final = "gen_ai.input.messages"
_SYSTEM: Final = "gen_ai.system_instructions"
_TOOLS: Final = "gen_ai.tool.definitions"
_WHOLE: Final = ("gen_ai.prompt", "input.value")
_INDEXED: Final = re.compile(
    r"(?:gen_ai\.prompt|llm\.input_messages)\.([0-9]{1,5})\.(?:message\.)?(role|content)"
)
PROMPT_KEYS: Final = frozenset((_MESSAGES, _SYSTEM, _TOOLS, *_WHOLE))
"""Attributes of a span's events that belong to the prompt."""


def prompt_of(attributes: Mapping[str, object]) -> tuple[bytes, Body | None] | None:
    """(the request or its messages as JSON, what stands beside them); None if there is no prompt.

    Texts that hold JSON are given as they are, as JSON texts.
    """
    messages = _text(attributes, _MESSAGES)
    if messages is not None:
        return messages, Body(
            system=msgspec.Raw(_inner(attributes, _SYSTEM)),
            tools=msgspec.Raw(_inner(attributes, _TOOLS)),
        )
    for name in _WHOLE:
        whole = _text(attributes, name)
        if whole is not None:
            return whole, None
    numbered = _numbered(attributes)
    return None if numbered is None else (numbered, None)


def _text(attributes: Mapping[str, object], name: str) -> bytes | None:
    value = attributes.get(name)
    return msgspec.json.encode(value) if isinstance(value, str) and value else None


def _inner(attributes: Mapping[str, object], name: str) -> bytes:
    """The JSON in a text; nothing if it is none."""
    value = attributes.get(name)
    data = value.encode("utf-8", "surrogatepass").strip() if isinstance(value, str) else b""
    return data if data[:1] in (b"{", b"[") else b""


def _numbered(attributes: Mapping[str, object]) -> bytes | None:
    """The messages whose role and content stand in attributes with numbers in their names."""
    found: dict[int, dict[str, str]] = {}
    for name, value in attributes.items():
        if isinstance(value, str) and name.startswith(("gen_ai.prompt.", "llm.input_messages.")):
            match = _INDEXED.fullmatch(name)
            if match is not None:
                found.setdefault(int(match[1]), {})[match[2]] = value
    return msgspec.json.encode([found[number] for number in sorted(found)]) if found else None
