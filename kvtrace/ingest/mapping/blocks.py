"""Block keys of mapped records: hashes or ids of blocks, or token ids that are hashed here."""

from __future__ import annotations

import re
from array import array
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np

from kvtrace.ingest.blocks.ids import BlockIds, chain_content_ids
from kvtrace.ingest.blocks.size import judge_blocks
from kvtrace.ingest.blocks.tokens import DEFAULT_BLOCK_TOKENS, chain_token_blocks
from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.mapping.spec import BlocksSpec, TokensSpec

_IDS: Final = msgspec.json.Decoder(list[int | str])
_TOKENS: Final = msgspec.json.Decoder(list[int])
_LARGEST_COUNTED: Final = 1 << 32
_UINT64_MAX: Final = (1 << 64) - 1
_SEPARATORS: Final = re.compile(r"[\s,;|]+")
_MISMATCH_SHARE: Final = 0.01
"""Share of rows without the blocks of their prompt length before it is noted."""

Keys: TypeAlias = "list[int] | array[int]"


class HashedBlocks:
    """Keys of block hashes that stand in the file."""

    def __init__(self, spec: BlocksSpec, context: ReadContext) -> None:
        self.block_tokens = context.block_size_tokens or spec.block_tokens
        """None: inferred when all rows are known."""
        self._spec = spec
        self._ids = BlockIds()
        self._rows = self._mismatches = self._ceil = self._floor = self._tails = 0
        self._highest = 0
        self._lengths, self._counts = array("q"), array("q")

    def keys(self, text: str, prompt_tokens: int | None, flags: list[str]) -> Keys | None:
        """The keys of one prompt; None, and flagged, if they are not those of its length.

        Raises:
            msgspec.ValidationError: it is no list of ids, or an id is outside 64 bits.
        """
        ids = self._parsed(text)
        if not ids:
            return None
        self._rows += 1
        if prompt_tokens is not None and not self._fits(len(ids), prompt_tokens):
            self._mismatches += 1
            flags.append("block_count_mismatch")
            return None
        self._ids.count(ids)
        numbers = [self._ids.text_key(item) if isinstance(item, str) else item for item in ids]
        if not 0 <= min(numbers) <= max(numbers) <= _UINT64_MAX:
            raise msgspec.ValidationError(f"`{self._spec.ref.said}` holds an id outside 64 bits")
        self._highest = max(self._highest, *numbers)
        return numbers if self._spec.is_chained else chain_content_ids(numbers)

    def _parsed(self, text: str) -> list[int | str]:
        if text.lstrip()[:1] != "[":
            return [part for part in _SEPARATORS.split(text) if part]
        try:
            return _IDS.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
            cause = f"`{self._spec.ref.said}` is not a list of block ids"
            raise msgspec.ValidationError(cause) from bad

    def _fits(self, count: int, prompt_tokens: int) -> bool:
        if self.block_tokens is None:
            self._lengths.append(prompt_tokens)
            self._counts.append(count)
            return True
        whole, rest = divmod(prompt_tokens, self.block_tokens)
        is_ceil, is_floor = count == whole + (rest > 0), count == whole
        self._tails += rest > 0
        self._ceil += is_ceil
        self._floor += is_floor
        return is_ceil or is_floor

    def describe(self, context: ReadContext) -> None:
        """Block size, tail and scope of the file, and what does not fit them."""
        self._ids.judge(context)
        spec = self._spec
        if not self._rows:
            return
        context.block_scope = self._scope()
        context.block_ids = "chained" if spec.is_chained else "content_chained"
        if self.block_tokens is None:
            lengths = np.frombuffer(self._lengths, dtype=np.int64)
            counts = np.frombuffer(self._counts, dtype=np.int64)
            judge_blocks(context, lengths, counts, column="prompt tokens")
        else:
            self._describe_stated(context, self.block_tokens)
        if spec.tail != "auto":
            context.partial_tail = spec.tail

    def _scope(self) -> Literal["file", "session", "global"]:
        """Ids that all are small were counted, mostly anew for every file; hashes are large."""
        if self._spec.scope != "auto":
            return self._spec.scope
        return "global" if self._highest > _LARGEST_COUNTED else "file"

    def _describe_stated(self, context: ReadContext, block_tokens: int) -> None:
        context.found_block_size_tokens = block_tokens
        whence = "--block-size" if context.block_size_tokens else "the mapping"
        context.block_size_reason = (
            f"{block_tokens} from {whence}; {self._rows - self._mismatches} of {self._rows}"
            " rows have as many ids as their prompt has blocks"
        )
        context.partial_tail = self._tail()
        if self._mismatches > _MISMATCH_SHARE * self._rows:
            context.note(
                "block_size_mismatch",
                f"{self._mismatches} of {self._rows} rows do not have the ids of a prompt of their"
                f" length at {block_tokens} tokens a block; they are kept without blocks.",
                severity="warning",
            )

    def _tail(self) -> Literal["counted", "dropped", "none"]:
        if self._floor > self._ceil:
            return "dropped"
        return "counted" if self._tails or not self._ceil else "none"


class TokenBlocks:
    """Keys of token ids, hashed while they are read."""

    def __init__(self, spec: TokensSpec, context: ReadContext) -> None:
        self._name = spec.ref.said
        self._key = context.token_key
        stated = context.block_size_tokens or spec.block_tokens
        self.block_tokens = stated or DEFAULT_BLOCK_TOKENS
        self._is_assumed = stated is None
        self._rows = 0

    def keys(self, text: str, adapter: str | None) -> tuple[Keys | None, int]:
        """(the keys of one prompt, its tokens).

        Raises:
            msgspec.ValidationError: it is no list of token ids.
        """
        try:
            ids = _TOKENS.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
            raise msgspec.ValidationError(f"`{self._name}` is not a list of token ids") from bad
        if any(number < 0 for number in ids):
            raise msgspec.ValidationError(f"`{self._name}` holds a negative token id")
        if self._key is None or not ids:
            return None, len(ids)
        keys = chain_token_blocks(
            ids, key=self._key, block_tokens=self.block_tokens, adapter=adapter
        )
        if keys is None:
            raise msgspec.ValidationError(f"`{self._name}` holds a token id outside 32 bits")
        self._rows += 1
        return keys, len(ids)

    def describe(self, context: ReadContext) -> None:
        """Block size and scope of the file."""
        if not self._rows:
            return
        context.found_block_size_tokens = self.block_tokens
        context.block_scope = "global"
        context.partial_tail = "counted"
        if not self._is_assumed:
            whence = "--block-size" if context.block_size_tokens else "the mapping"
            context.block_size_reason = f"{self.block_tokens} from {whence}"
            return
        context.block_size_reason = f"{self.block_tokens}, vLLM's default"
        context.note(
            "block_size_assumed",
            f"The mapping states no block size for `{self._name}`: token ids are hashed in blocks"
            f" of {self.block_tokens}.",
        )
