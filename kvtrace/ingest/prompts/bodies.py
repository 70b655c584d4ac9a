"""Requests to a model in the shapes of the APIs, as one prompt: what gateways keep of a request.

A body is a JSON object (or such an object inside a text): OpenAI's chat, completions and Responses,
Anthropic's messages, Gemini's contents, TGI's inputs. Or it is the list of messages alone, a plain
text, or token ids. Tools come first, then the system prompt, then the messages: the order of
Anthropic's API, and of most chat templates nearly so.
"""

from __future__ import annotations

from array import array
from typing import Final

import msgspec

from kvtrace.ingest.contract import ReadContext, RequestRow
from kvtrace.ingest.prompts import Prompt
from kvtrace.ingest.prompts.chat import plain_json, render_chat, render_content
from kvtrace.ingest.prompts.rows import MISMATCH_FLAG, Prompted, filled
from kvtrace.ingest.values.jsonfields import decode_json

_NO_VALUE: Final = msgspec.Raw(b"")
_NOTHING: Final = (b"", b"null", b"{}", b"[]", b'""')
_REDACTED: Final = (b"redacted-by-litellm", b"<masked due to ")
"""What LiteLLM and Langfuse write where a prompt was."""
_LONGEST_MASK: Final = 4_096
_CUT: Final = b"litellm_truncated"
"""Stands in texts that LiteLLM cut for its spend logs."""
_HEAD_BYTES: Final = 2_048
_BESIDE: Final = ("tools", "functions", "system", "instructions")
_MAX_NESTED_TEXTS: Final = 3


class Body(msgspec.Struct, gc=False):
    """The parts of a request that a model reads. Nothing else of a request is looked at."""

    tools: msgspec.Raw = _NO_VALUE
    functions: msgspec.Raw = _NO_VALUE
    system: msgspec.Raw = _NO_VALUE
    instructions: msgspec.Raw = _NO_VALUE
    systemInstruction: msgspec.Raw = _NO_VALUE
    system_instruction: msgspec.Raw = _NO_VALUE
    messages: msgspec.Raw = _NO_VALUE
    contents: msgspec.Raw = _NO_VALUE
    input: msgspec.Raw = _NO_VALUE
    prompt: msgspec.Raw = _NO_VALUE
    inputs: msgspec.Raw = _NO_VALUE


class _Turn(msgspec.Struct, gc=False):
    """A message of Gemini, or of OpenTelemetry's conventions."""

    role: str = ""
    parts: msgspec.Raw = _NO_VALUE


class _Content(msgspec.Struct, gc=False):
    content: msgspec.Raw = _NO_VALUE


_BODY: Final = msgspec.json.Decoder(Body)
_TEXT: Final = msgspec.json.Decoder(str)
_IDS: Final = msgspec.json.Decoder(list[int])
_TEXTS: Final = msgspec.json.Decoder(list[str])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TURN: Final = msgspec.json.Decoder(_Turn)
_CONTENT: Final = msgspec.json.Decoder(_Content)
_OUTERMOST: Final[dict[bytes, msgspec.json.Decoder[Body | list[msgspec.Raw] | str]]] = {
    b"{": msgspec.json.Decoder(Body),
    b"[": msgspec.json.Decoder(list[msgspec.Raw]),
    b'"': msgspec.json.Decoder(str),
}
_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, UnicodeEncodeError, RecursionError)


class BodyReader:
    """Reads the prompts of one file, and counts what was odd about them."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._media = self._hidden = self._unread = 0

    @property
    def is_on(self) -> bool:
        """Whether prompts are to be read at all."""
        return self._context.prompt_hasher is not None

    def prompted(
        self, row: RequestRow, *bodies: bytes | msgspec.Raw, beside: Body | None = None
    ) -> Prompted:
        """The row with the prompt of the first body that has one.

        `beside`: tools and system prompt, where they stand apart from a list of messages. Prompts
        to different LLMs share no block. Token ids become the blocks of the row at once.
        """
        if self._context.prompt_hasher is None:
            return row, None
        for body in bodies:
            found = self._found(bytes(body), beside)
            if isinstance(found, array):
                self._take_ids(row, found)
                return row, None
            if found is not None:
                return row, Prompt(found.text, is_chat=found.is_chat, adapter=row.llm)
        return row, None

    def fill(self, row: RequestRow, data: bytes, *, beside: Body | None = None) -> None:
        """Give the row the block keys of a prompt at once, by the bytes a token known so far."""
        hasher = self._context.prompt_hasher
        if hasher is not None:
            filled(*self.prompted(row, data, beside=beside), hasher)

    def _found(self, data: bytes, beside: Body | None) -> Prompt | array[int] | None:
        if data in _NOTHING:
            return None
        if _is_hidden(data):
            self._hidden += 1
            return None
        body = _body_of(data) or Body()
        if beside is not None:
            for name in _BESIDE:
                if bytes(getattr(body, name)) in _NOTHING:
                    setattr(body, name, getattr(beside, name))
        try:
            made = self._whole(body)
        except _ERRORS:
            made = None
        self._unread += made is None
        return made

    def _whole(self, body: Body) -> Prompt | array[int] | None:
        """The prompt of a body, every part of it; None if it has none."""
        if bytes(body.messages) not in _NOTHING:
            said = self._messages(bytes(body.messages))
        elif bytes(body.contents) not in _NOTHING:
            said = self._turns(bytes(body.contents))
        elif bytes(body.input) not in _NOTHING:
            said = self._input(bytes(body.input))
        else:
            return _completion(body)
        if said is None:
            return None
        systems = (body.system, body.instructions, body.systemInstruction, body.system_instruction)
        before = [plain_json(data) for data in _filled(body.tools, body.functions)]
        for data in _filled(*systems):
            before += (b"<system>\n", self._system(data), b"\n")
        return Prompt(b"".join((*before, said)), is_chat=True)

    def _messages(self, data: bytes) -> bytes | None:
        if data[:1] == b'"':
            return _TEXT.decode(data).encode("utf-8", "surrogatepass")
        if data[:1] != b"[":
            return None
        if b'"parts"' in data[:_HEAD_BYTES] and _has_parts(data):
            return self._turns(data)
        rendered = render_chat(data)
        self._media += rendered.media
        return rendered.text

    def _turns(self, data: bytes) -> bytes:
        """Messages whose content is called `parts`."""
        pieces: list[bytes] = []
        for item in _ITEMS.decode(data if data[:1] == b"[" else b"[" + data + b"]"):
            turn = _TURN.decode(item)
            text, media = render_content(_parts(bytes(turn.parts)))
            self._media += media
            pieces += (b"<", turn.role.encode("utf-8", "surrogatepass"), b">\n", text, b"\n")
        return b"".join(pieces)

    def _input(self, data: bytes) -> bytes | None:
        """OpenAI's Responses: a text, or items, some of them messages."""
        if data[:1] == b'"':
            return b"<user>\n" + _TEXT.decode(data).encode("utf-8", "surrogatepass") + b"\n"
        if data[:1] != b"[":
            return None
        pieces: list[bytes] = []
        for item in _ITEMS.decode(data):
            one = bytes(item)
            if bytes(_CONTENT.decode(one).content) in _NOTHING:
                pieces.append(plain_json(one))  # a call of a tool, or what it gave
                continue
            rendered = render_chat(b"[" + one + b"]")
            self._media += rendered.media
            pieces.append(rendered.text)
        return b"".join(pieces)

    def _system(self, data: bytes) -> bytes:
        if data[:1] == b"{":
            data = _parts(bytes(_TURN.decode(data).parts)) or data
        text, media = render_content(data)
        self._media += media
        return text

    def _take_ids(self, row: RequestRow, ids: array[int]) -> None:
        hasher = self._context.prompt_hasher
        made = None if hasher is None else hasher.token_ids(ids, adapter=row.llm)
        if made is None:
            self._unread += 1
            return
        row.block_keys = (
            made.keys if row.prompt_tokens is None else made.keys_for(row.prompt_tokens)
        )
        if row.prompt_tokens is None:
            row.prompt_tokens = made.tokens
        if row.block_keys is None:
            row.flags = (*row.flags, MISMATCH_FLAG)

    def describe(self) -> None:
        """Say what is not in the blocks."""
        note = self._context.note
        if self._media:
            note(
                "media_in_prompts",
                f"Images, sounds and files in prompts: {self._media:,}. In the blocks each is a"
                " digest, so that equal ones keep a prefix and others end it; how many tokens it"
                " takes, and so where the blocks behind it begin, is not known.",
                severity="warning",
            )
        if self._hidden:
            note(
                "prompts_hidden",
                f"Prompts that were cut or blacked out before they were logged: {self._hidden:,}."
                " Those requests have no blocks.",
            )
        if self._unread:
            note(
                "prompts_not_read",
                f"Requests whose body has no prompt that is known: {self._unread:,} (several"
                " prompts at once, audio, a body that is cut). They have no blocks.",
            )


def _is_hidden(data: bytes) -> bool:
    if _CUT in data:
        return True
    return len(data) <= _LONGEST_MASK and any(mark in data for mark in _REDACTED)


def _has_parts(data: bytes) -> bool:
    """Whether the messages of a list have `parts` in place of a content."""
    first = next(iter(_ITEMS.decode(data)), None)
    return first is not None and bytes(_TURN.decode(first).parts)[:1] == b"["


def _filled(*values: msgspec.Raw) -> list[bytes]:
    return [data for value in values if (data := bytes(value)) not in _NOTHING]


def _parts(data: bytes) -> bytes:
    """Parts in the shape of a message's content; OpenTelemetry calls the text `content`."""
    if b'"content"' not in data or data[:1] != b"[":
        return data
    parts = [_text_part(bytes(item)) for item in _ITEMS.decode(data)]
    return b"[" + b",".join(parts) + b"]"


def _text_part(data: bytes) -> bytes:
    content = bytes(_CONTENT.decode(data).content)
    return b'{"text":' + content + b"}" if content[:1] == b'"' else data


def _completion(body: Body) -> Prompt | array[int] | None:
    """A prompt that is no chat; several prompts in one request have no prefix of their own."""
    for data in _filled(body.prompt, body.inputs):
        if data[:1] == b'"':
            return Prompt(_TEXT.decode(data).encode("utf-8", "surrogatepass"))
        if data[:1] == b"[":
            return _one_of_list(data)
    return None


def _one_of_list(data: bytes) -> Prompt | array[int] | None:
    """The prompt of a list: token ids, or the only text in it."""
    try:
        return array("q", _IDS.decode(data))
    except (msgspec.DecodeError, OverflowError):
        pass
    try:
        texts = _TEXTS.decode(data)
    except msgspec.DecodeError:
        items = _ITEMS.decode(data)
        return array("q", _IDS.decode(items[0])) if len(items) == 1 else None
    return Prompt(texts[0].encode("utf-8", "surrogatepass")) if len(texts) == 1 else None


def _body_of(data: bytes) -> Body | None:
    """The body in a field: an object, a list of messages, a text that is one of them, or plain."""
    for _ in range(_MAX_NESTED_TEXTS):
        start = data[:1]
        if start == b"{":
            return _object_body(data)
        if start == b"[":
            return _list_body(data)
        if start != b'"':
            return None
        try:
            inner = _TEXT.decode(data).encode().strip()
        except _ERRORS:
            return None
        if inner[:1] not in (b"{", b"[", b'"') or not _is_json(inner):
            return Body(prompt=msgspec.Raw(data))
        data = inner
    return None


def _is_json(data: bytes) -> bool:
    """Whether a text that starts like JSON is: its outermost layer is looked at."""
    try:
        _OUTERMOST[data[:1]].decode(data)
    except _ERRORS:
        return False
    return True


def _object_body(data: bytes) -> Body | None:
    try:
        return decode_json(_BODY, data)
    except _ERRORS:
        return None


def _list_body(data: bytes) -> Body | None:
    """A list of messages, or of texts or token ids."""
    inner = data[1:].lstrip()[:1]
    return Body(messages=msgspec.Raw(data)) if inner == b"{" else Body(prompt=msgspec.Raw(data))
