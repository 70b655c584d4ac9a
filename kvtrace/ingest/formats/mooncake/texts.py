"""Prompts of AIPerf's rows that have a text instead of a length: on their way to block keys."""

from __future__ import annotations

from typing import Final

import msgspec

from kvtrace.ingest.contract import Record
from kvtrace.ingest.prompts import Prompt
from kvtrace.ingest.prompts.chat import render_messages

_NO_VALUE: Final = msgspec.Raw(b"")


class _Payload(msgspec.Struct, gc=False):
    messages: msgspec.Raw = _NO_VALUE
    tools: msgspec.Raw = _NO_VALUE
    prompt: str | None = None


class _Row(msgspec.Struct, gc=False):
    text_input: str | None = None
    messages: msgspec.Raw = _NO_VALUE
    tools: msgspec.Raw = _NO_VALUE
    payload: _Payload | None = None


_DECODER: Final = msgspec.json.Decoder(_Row)


def prompt_of(record: Record) -> Prompt | None:
    """The prompt of a row; None if it has none, or of a shape that is not known.

    Tools stand before the messages, as chat templates put them.
    """
    try:
        row = _DECODER.decode(record.data)
        if row.text_input is not None:
            return Prompt(_octets(row.text_input))
        body = row.payload or _Payload(messages=row.messages, tools=row.tools)
        if bytes(body.messages) != b"":
            return Prompt(bytes(body.tools) + render_messages(body.messages), is_chat=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if body.prompt is None else Prompt(_octets(body.prompt))


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
