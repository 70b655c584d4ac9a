"""Token ids to block keys: chained, keyed hashes, made while the ids are read and never stored.

A block's key depends on the run's key, the adapter, every token before it and its own tokens, as
engines chain theirs: equal keys mean equal prefixes. A partial last block gets a key of its own, so
it matches only an equal partial block.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

DEFAULT_BLOCK_TOKENS: Final = 16
"""vLLM's block size unless it is configured otherwise (vLLM CacheConfig, releases 0.4 to 0.33)."""
_KEY_BYTES: Final = 8
_TOKEN_BYTES: Final = 4
_DECODER: Final = msgspec.json.Decoder(list[int])


def parse_token_ids(listed: str | bytes) -> list[int] | None:
    """The ids of a list repr such as `[1, 2, 3]`; None if it is not a whole list of token ids."""
    try:
        ids = _DECODER.decode(listed)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    has_minus = "-" in listed if isinstance(listed, str) else b"-" in listed
    return None if has_minus else ids


def chain_token_blocks(
    token_ids: Sequence[int], *, key: bytes, block_tokens: int, adapter: str | None = None
) -> array[int] | None:
    """(blocks,) unsigned 64-bit keys of the prompt's blocks, a partial last block included.

    None if an id does not fit in 32 bits: no vocabulary has it.

    Formula: key_i = BLAKE2b-64(run key, adapter ‖ 0 ‖ tokens_0 … tokens_i).
    """
    try:
        packed = array("I", token_ids)
    except OverflowError:
        return None
    if sys.byteorder == "big":
        packed.byteswap()
    octets, step = packed.tobytes(), block_tokens * _TOKEN_BYTES
    hashed = hashlib.blake2b(digest_size=_KEY_BYTES, key=key)
    hashed.update((adapter or "").encode("utf-8", "surrogatepass") + b"\0")
    update, digest = hashed.update, hashed.digest
    digests = []
    for start in range(0, len(octets), step):
        update(octets[start : start + step])
        digests.append(digest())
    keys = array("Q", b"".join(digests))
    if sys.byteorder == "big":
        keys.byteswap()
    return keys
