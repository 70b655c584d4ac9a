"""Data sets of chats that are text only: ShareGPT, WildChat, LMSYS-Chat-1M.

Shapes: `conversations[{from, value}]` (ShareGPT), `conversation[{role, content}]` with
`conversation_hash` (WildChat) or `conversation_id` (LMSYS). They have no token counts and no time
of a request. So they are read only when somebody says how text becomes tokens (`--tokenizer`, else
`--bytes-per-token`): then each reply is a request whose prompt is the conversation before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.prompts import Prompt, PromptHasher
from kvtrace.ingest.prompts.rows import Prompted, prompted_rows
from kvtrace.ingest.values.jsonfields import Ignored, decode_json
from kvtrace.ingest.values.rawvalues import id_of, name_of
from kvtrace.units import MIB

_USERS: Final = frozenset({"human", "user"})
_REPLIES: Final = frozenset({"gpt", "chatgpt", "assistant", "bing", "bard", "model"})
_WHY_NOT: Final = (
    "chat texts have no token counts and no times: nothing can be measured without a tokenizer;"
    " `--tokenizer FILE` (or `--bytes-per-token X`) reads each reply as a request, in file order"
)


_MAX_PROMPT_BYTES: Final = 128 * MIB
"""Of all prompts of one chat, each of which holds those before: 500 turns of 1 KB have 125 MB."""


class _Message(msgspec.Struct, gc=False):
    role: str | None = None
    content: str | None = None
    sender: str | None = msgspec.field(default=None, name="from")
    value: str | None = None


class _Chat(msgspec.Struct, gc=False):
    conversations: list[_Message] | None = None
    conversation: list[_Message] | None = None
    id: str | int | None = None
    conversation_hash: str | None = None
    conversation_id: str | None = None
    model: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Chat)


class _ChatFile:
    def __init__(self, hasher: PromptHasher) -> None:
        self._hasher = hasher
        self._chats = 0

    def rows(self, record: Record) -> list[Prompted] | Ignored:
        """A request for each reply of one chat.

        Raises:
            msgspec.ValidationError: a field is missing or of the wrong type.
            msgspec.DecodeError: not JSON.
        """
        chat = decode_json(_DECODER, record.data)
        messages = chat.conversations if chat.conversations is not None else chat.conversation
        if messages is None:
            raise msgspec.ValidationError("no `conversations` and no `conversation`")
        self._chats += 1
        session = chat.conversation_hash or chat.conversation_id or id_of(chat.id)
        rows: list[Prompted] = []
        pieces: list[bytes] = []
        held_bytes = 0
        for message in messages:
            role = _role(message)
            text = message.content if message.content is not None else message.value
            if role == "assistant" and pieces:
                before = b"".join(pieces)
                pieces = [before]
                held_bytes += len(before)
                if held_bytes > _MAX_PROMPT_BYTES:
                    raise msgspec.ValidationError("a chat of more turns than can be read")
                output, flags = self._hasher.count(text or "")
                row = RequestRow(
                    offset=record.offset,
                    line=record.line,
                    session_id=session or f"chat {self._chats}",
                    turn=len(rows),
                    llm=name_of(chat.model),
                    output_tokens=output,
                    flags=flags,
                )
                rows.append((row, Prompt(before, is_chat=True)))
            pieces.append(f"<{role}>\n{text or ''}\n".encode("utf-8", "surrogatepass"))
        return rows or Ignored("no_reply")


def _role(message: _Message) -> str:
    role = message.role or message.sender or "user"
    return "assistant" if role in _REPLIES else "user" if role in _USERS else role


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    hasher = context.prompt_hasher
    if hasher is None or not hasher.is_stated:
        for _record in records:
            context.tally.ignore("needs_tokenizer")
        context.note("needs_tokenizer", _WHY_NOT, severity="warning")
        return
    yield from prompted_rows(records, context, _ChatFile(hasher).rows)
    context.clock_reason = "chats have no time of a request: they are read in file order"


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_chat(entry) for entry in objects)
    if not ours or 2 * ours < len(objects):
        return None
    return Guess(0.9, f"{ours} of {len(objects)} objects hold a conversation in text")


def _is_chat(entry: dict[str, object]) -> bool:
    if "hash_ids" in entry:
        return False
    return isinstance(entry.get("conversations", entry.get("conversation")), list)


FORMATS: tuple[Format, ...] = (
    Format(
        name="chat_text",
        title="ShareGPT, WildChat or LMSYS chats (text only)",
        framing="json",
        best_grade="A",
        supplies=(
            "session_id",
            "turn",
            "llm",
            "prompt_tokens",
            "output_tokens",
            "block_keys",
        ),
        missing={
            "requests": "`--tokenizer FILE` (or `--bytes-per-token X`): the texts have no counts",
            "arrivals": "a trace with times; a chat says at most when its last turn was",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
            "production": "logs of your own service (these are chats of a data set)",
        },
        versions="ShareGPT (conversations of from and value), WildChat, LMSYS-Chat-1M",
        sniff=_sniff,
        read=_read,
        enable_hint="a public data set; `--tokenizer tokenizer.json` of the LLM that you serve",
    ),
)
