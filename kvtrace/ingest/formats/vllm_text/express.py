"""vLLM's messages about requests, told from bytes: the shapes that nearly all of them have.

They are what `messages` reads, for engines without adapters: `Added request`, `Finished request`,
`Received request` bare, or with prompt and token ids, and `Request … details`. Whatever is not to
the letter as it is printed is left to `messages`. A prompt is stepped over from quote to quote.
"""

from __future__ import annotations

import re
from array import array
from typing import Final, Literal

from kvtrace.ingest.blocks.tokens import (
    DEFAULT_BLOCK_TOKENS,
    chain_token_blocks,
    parse_token_ids,
)
from kvtrace.ingest.contract import ExpressKind, ReadContext
from kvtrace.ingest.formats.vllm_text.messages import RequestEvent, is_truncated

_ID: Final = rb"([!-~]{1,512})"
_HEAD_ID: Final = rb"([!-9;-~]{1,512}+)"
"""An id without a colon, where one ends it."""
_QUOTED: Final = {
    ord("'"): re.compile(rb"'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL),
    ord('"'): re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL),
}
_NO_LORA: Final = b", lora_request: None."
_NO_ADAPTER: Final = b", lora_request: None, prompt_adapter_request: None."
_NO_EMBEDS: Final = b", prompt_embeds shape: None"
_IDS: Final = b", prompt_token_ids: "
_PARAMS: Final = b", params: SamplingParams("
_DETAILS: Final = ("details",)


ADDED, BARE, RECEIVED, DETAILS, FINISHED = range(5)
"""Numbers of the kinds."""
FEATURES: Final[dict[int, tuple[str, ...]]] = {
    ADDED: ("added",),
    BARE: ("received_bare",),
    FINISHED: ("finished",),
}
"""What lines of kinds without prompt say of the version."""


def express_kinds(context: ReadContext) -> tuple[ExpressKind, ...]:
    """The kinds in the order of their numbers; token ids become block keys at once.

    The value of a kind without prompt is the request id.
    """
    prompts = _Prompts(context)
    bare = rb"Received request %s: params: SamplingParams\([^\n]*, lora_request: None\." % _HEAD_ID
    return (
        ExpressKind(rb"Added request %s\." % _ID, closes=(BARE, RECEIVED)),
        ExpressKind(bare),
        ExpressKind(rb"Received request %s: prompt: ([^\n]*+)" % _HEAD_ID, prompts.received),
        ExpressKind(rb"Request %s details: prompt: ([^\n]*+)" % _ID, prompts.details),
        ExpressKind(rb"Finished request %s\." % _ID),
    )


def event_of(kind: int, request_id: str) -> RequestEvent:
    """The event of a kind without prompt."""
    if kind == ADDED:
        return RequestEvent("added", (request_id,), features=FEATURES[kind])
    if kind == FINISHED:
        return RequestEvent("ended", (request_id,), status="ok", features=FEATURES[kind])
    return RequestEvent("received", (request_id,), features=FEATURES[kind])


class _Prompts:
    """Reads messages with prompt and token ids; the ids become block keys at once."""

    def __init__(self, context: ReadContext) -> None:
        self._key = context.token_key
        self._block_tokens = context.block_size_tokens or DEFAULT_BLOCK_TOKENS

    def received(self, match: re.Match[bytes], first: int) -> RequestEvent | None:
        """`Received request ID: prompt: …` with SamplingParams and without adapter."""
        rest = match[first + 1]
        start = _string_end(rest)
        if start is None or not rest.startswith(_PARAMS, start):
            return None
        features = ["received_prompt"]
        if rest.endswith(_NO_LORA):
            end = len(rest) - len(_NO_LORA)
        elif rest.endswith(_NO_ADAPTER):
            end = len(rest) - len(_NO_ADAPTER)
            features.append("prompt_adapter")
        else:
            return None
        has_embeds = rest.endswith(_NO_EMBEDS, start, end)
        features.append("embeds" if has_embeds else "no_embeds")
        end -= len(_NO_EMBEDS) if has_embeds else 0
        at = rest.rfind(_IDS, start + len(_PARAMS), end)
        ids = _id_list(rest[at + len(_IDS) : end]) if at >= 0 else None
        if ids is None:
            return None
        return self._event("received", match[first], rest[:start], ids, tuple(features))

    def details(self, match: re.Match[bytes], first: int) -> RequestEvent | None:
        """`Request ID details: prompt: …`."""
        rest = match[first + 1]
        start = _string_end(rest)
        if start is None or not rest.startswith(_IDS, start) or rest[-1:] != b".":
            return None
        end = len(rest) - 1
        if rest.endswith(_NO_EMBEDS, start, end):
            end -= len(_NO_EMBEDS)
        ids = _id_list(rest[start + len(_IDS) : end])
        return (
            None
            if ids is None
            else self._event("details", match[first], rest[:start], ids, _DETAILS)
        )

    def _event(
        self,
        kind: Literal["received", "details"],
        request_id: bytes,
        prompt: bytes,
        ids: list[int] | Literal["none"],
        features: tuple[str, ...],
    ) -> RequestEvent:
        known = None if ids == "none" else ids
        count = None if known is None else len(known)
        is_cut = is_truncated(prompt.decode("utf-8", "replace"), count)
        if is_cut:
            known = None
        return RequestEvent(
            kind,
            (request_id.decode(),),
            prompt_tokens=count,
            token_ids=known if kind == "details" else None,
            block_keys=None if known is None else self._keys(known),
            is_truncated=is_cut,
            features=features,
        )

    def _keys(self, token_ids: list[int]) -> array[int] | None:
        if not self._key:
            return None
        return chain_token_blocks(token_ids, key=self._key, block_tokens=self._block_tokens)


def _id_list(listed: bytes) -> list[int] | Literal["none"] | None:
    """The ids, `none` where the log says that it has none; None if it is no whole list."""
    return "none" if listed == b"None" else parse_token_ids(listed)


def _string_end(rest: bytes) -> int | None:
    """Index behind the quoted string at the start; None if there is none, or it never ends."""
    if rest[:1] not in (b"'", b'"'):
        return None
    end = rest.find(rest[:1], 1) + 1
    if rest.find(b"\\", 1, end) < 0:
        return end or None
    match = _QUOTED[rest[0]].match(rest)
    return None if match is None else match.end()
