"""Prompts to block keys: text, chat messages or token ids become keyed, chained hashes on reading.

A reader takes `context.prompt_hasher` (one a file; None where the run has no key), calls one of
`text`, `messages`, `token_ids` for each prompt, and `describe(context)` when the file ends:

    made = hasher.messages(raw_json)
    row.block_keys, row.prompt_tokens, row.flags = made.keys, made.tokens, made.flags

Where the log states the prompt's tokens itself, it is `made.keys_for(stated)` instead, and the
stated number. `prompts.rows.prompted_rows` does all that for logs of JSON records. Nothing but keys
and counts leaves this package.

How a text becomes blocks, best first: token ids are taken as they are; a local tokenizer
(`--tokenizer`) makes them from text; else a block is a fixed number of bytes, from the bytes a
token that are stated (`--bytes-per-token`), measured (`calibrate`) or assumed.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from kvtrace.ingest.blocks.tokens import DEFAULT_BLOCK_TOKENS, chain_token_blocks
from kvtrace.ingest.prompts.chat import TEMPLATE, render_messages
from kvtrace.ingest.prompts.siphash import COMPILE_FROM_BYTES, KEY_BYTES, prefix_keys
from kvtrace.ingest.prompts.tokenizer import Tokenizer, check_tokenizer, load_tokenizer

if TYPE_CHECKING:
    from kvtrace.ingest.contract import ReadContext

ASSUMED_BYTES_PER_TOKEN: Final = 4.0
"""English text by OpenAI's rule of thumb (its article "What are tokens and how to count them")."""
ESTIMATED_FLAG: Final = "tokens_estimated"
_LIKELY_RANGE: Final = (2.5, 5.0)
"""Bytes a token of source code and of plain English in vocabularies of 100 000 and more."""
_MAX_STRETCH: Final = 2
"""A stated length this many times away from the text's own is of something else than the text."""
_MIN_CALIBRATION: Final = 8
"""Prompts from which a measured ratio is believed."""


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """The text of a prompt on its way to keys; chat messages are rendered already."""

    text: bytes
    is_chat: bool = False
    adapter: str | None = None


class PromptBlocks(msgspec.Struct, frozen=True, gc=False):
    """The block keys of one prompt."""

    keys: array[int]
    """Unsigned 64-bit keys, chained, one a block; the last block may be partial."""
    tokens: int
    """Prompt tokens: counted, or estimated from bytes (then `flags` says so)."""
    flags: tuple[str, ...]
    """Flags of the row if `tokens` goes into it."""
    block_tokens: int

    def keys_for(self, prompt_tokens: int) -> array[int] | None:
        """As many keys as a prompt of the stated length has; None if it is of another text.

        Surplus blocks are cut off. Missing ones (a chat template, tools that are not in the log)
        get keys that follow from the last one: they are shared by equal prompts only.
        """
        due = -(-prompt_tokens // self.block_tokens)
        have = len(self.keys)
        if due <= have:
            return self.keys[:due] if due * _MAX_STRETCH >= have else None
        if not have or due > have * _MAX_STRETCH:
            return None
        last = self.keys[-1].to_bytes(8, "little")
        more = (
            hashlib.blake2b(last + place.to_bytes(8, "little"), digest_size=8).digest()
            for place in range(due - have)
        )
        return self.keys + array("Q", (int.from_bytes(key, "little") for key in more))


class PromptHasher:
    """Makes block keys of the prompts of one file, and remembers how, for the file's notes."""

    def __init__(
        self,
        key: bytes,
        *,
        block_tokens: int | None = None,
        tokenizer: str | None = None,
        bytes_per_token: float | None = None,
    ) -> None:
        """`key` is the run's key, `tokenizer` the path of a local one (read when first needed).

        Raises:
            UsageError: there is no file at the path.
        """
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        self._key = key
        self.block_tokens = block_tokens or DEFAULT_BLOCK_TOKENS
        self._is_forced = block_tokens is not None
        self._tokenizer_path = tokenizer
        self._bytes_per_token = bytes_per_token or ASSUMED_BYTES_PER_TOKEN
        self._whence = "assumed" if bytes_per_token is None else "stated by --bytes-per-token"
        self._is_calibrated = False
        self.is_holding = False
        """Rows are held back to measure their prompts."""
        self._hashed_bytes = 0
        self._by_bytes = self._by_tokenizer = self._by_ids = self._chats = 0

    def blocks(self, prompt: Prompt) -> PromptBlocks:
        """The blocks of a prompt."""
        self._chats += prompt.is_chat
        return self.text(prompt.text, adapter=prompt.adapter)

    def text(self, text: str | bytes, *, adapter: str | None = None) -> PromptBlocks:
        """The blocks of a prompt that is text."""
        tokenizer = self._tokenizer
        if tokenizer is None:
            octets = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
            return self._byte_blocks(octets, adapter)
        decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        self._by_tokenizer += 1
        ids = tokenizer.encode(decoded.encode("utf-8", "replace").decode())
        return self._id_blocks(ids, adapter) or PromptBlocks(array("Q"), 0, (), self.block_tokens)

    def messages(
        self, messages: bytes | msgspec.Raw, *, adapter: str | None = None
    ) -> PromptBlocks:
        """The blocks of a prompt that is a JSON list of chat messages.

        Raises:
            msgspec.DecodeError: not JSON, or no list of objects.
        """
        return self.blocks(Prompt(render_messages(messages), is_chat=True, adapter=adapter))

    def token_ids(self, ids: Sequence[int], *, adapter: str | None = None) -> PromptBlocks | None:
        """The blocks of a prompt that is token ids; None if one of them fits no vocabulary."""
        made = self._id_blocks(ids, adapter)
        self._by_ids += made is not None
        return made

    def count(self, text: str) -> tuple[int, tuple[str, ...]]:
        """(tokens of a text, the flags that go with the number): for replies."""
        tokenizer = self._tokenizer
        if tokenizer is not None:
            return len(tokenizer.encode(text.encode("utf-8", "replace").decode())), ()
        return self._estimate(len(text.encode("utf-8", "surrogatepass"))), (ESTIMATED_FLAG,)

    @property
    def can_calibrate(self) -> bool:
        """Whether bytes a token are still open: nobody stated them and there is no tokenizer."""
        return self._whence == "assumed" and self._tokenizer_path is None and not self._by_bytes

    @property
    def is_stated(self) -> bool:
        """Whether somebody said how text becomes tokens."""
        return self._tokenizer_path is not None or self._whence.startswith("stated")

    def calibrate(self, prompts: Iterable[tuple[int, int]]) -> None:
        """Measure bytes a token on (bytes, tokens) of prompts whose tokens the log states.

        Has an effect only before the first prompt, with enough of them, if nobody stated it.
        """
        known = [(size, tokens) for size, tokens in prompts if size > 0 and tokens > 0]
        if not self.can_calibrate or len(known) < _MIN_CALIBRATION:
            return
        # the median: a prompt with an image in it has many times the bytes of its tokens
        measured = median(size / tokens for size, tokens in known)
        if 1 <= measured <= 16:
            self._bytes_per_token, self._is_calibrated = measured, True
            self._whence = f"measured on {len(known)} prompts of the file"

    @property
    def used(self) -> int:
        """Prompts that it made keys of."""
        return self._by_bytes + self._by_tokenizer + self._by_ids

    def describe(self, context: ReadContext) -> None:
        """Write block size, scope and how the keys were made into the context."""
        if not self.used:
            return
        context.found_block_size_tokens = self.block_tokens
        context.partial_tail, context.block_ids = "counted", "chained"
        # the run's key makes equal prefixes equal in all files, if their blocks end alike
        context.block_scope = "file" if self._is_calibrated else "global"
        context.block_size_reason = (
            f"{self.block_tokens} from --block-size"
            if self._is_forced
            else f"{self.block_tokens}, vLLM's default: prompts were cut into blocks here"
        )
        if self._by_bytes:
            context.note("block_keys_from_bytes", self._byte_words(), severity="warning")
        if self._by_tokenizer and self._tokenizer is not None:
            context.note(
                "prompts_tokenized", f"prompts were tokenized here with {self._tokenizer.name}"
            )
        if self._chats:
            context.note(
                "chat_template_assumed",
                f"chat messages were rendered as `{TEMPLATE}`, not by the LLM's own template:"
                " what that adds to a message is not in the blocks",
            )

    @property
    def _tokenizer(self) -> Tokenizer | None:
        return None if self._tokenizer_path is None else load_tokenizer(self._tokenizer_path)

    @property
    def _block_bytes(self) -> int:
        return max(1, round(self.block_tokens * self._bytes_per_token))

    def _estimate(self, byte_count: int) -> int:
        """Formula: ceil(bytes × block tokens / block bytes), so that blocks agree with lengths."""
        return -(-byte_count * self.block_tokens // self._block_bytes)

    def _byte_blocks(self, octets: bytes, adapter: str | None) -> PromptBlocks:
        self._by_bytes += 1
        self._hashed_bytes += len(octets)
        named = b"prompt bytes\0" + (adapter or "").encode("utf-8", "surrogatepass")
        found = prefix_keys(
            octets,
            key=hashlib.blake2b(named, digest_size=KEY_BYTES, key=self._key).digest(),
            block_bytes=self._block_bytes,
            compiled=self._hashed_bytes >= COMPILE_FROM_BYTES,
        )
        keys = array("Q", found.tobytes())
        return PromptBlocks(keys, self._estimate(len(octets)), (ESTIMATED_FLAG,), self.block_tokens)

    def _id_blocks(self, ids: Sequence[int], adapter: str | None) -> PromptBlocks | None:
        keys = chain_token_blocks(
            ids, key=self._key, block_tokens=self.block_tokens, adapter=adapter
        )
        return None if keys is None else PromptBlocks(keys, len(ids), (), self.block_tokens)

    def _byte_words(self) -> str:
        low, high = _LIKELY_RANGE
        ratio = self._block_bytes / self.block_tokens
        words = (
            f"blocks are {self._block_bytes} bytes of text for {self.block_tokens} tokens"
            f" ({ratio:.2f} bytes a token, {self._whence})"
        )
        if self._whence == "assumed":
            words += (
                f"; real tokenizers give {low} to {high}, so token counts and cache sizes may be"
                f" {high / ratio - 1:.0%} too high or {1 - low / ratio:.0%} too low"
            )
        return f"{words}; a shared prefix is found to one block; `--tokenizer FILE` counts exactly"
