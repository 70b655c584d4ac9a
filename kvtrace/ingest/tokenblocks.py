"""Token ids to block keys: chained, keyed hashes, made while the ids are read and never stored.

A block's key depends on the run's key, the adapter, every token before it and its own tokens, as
engines chain theirs: equal keys mean equal prefixes. A partial last block gets a key of its own, so
it matches only an equal partial block.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
import numpy as np

DEFAULT_BLOCK_TOKENS: Final = 16
"""vLLM's block size unless it is configured otherwise (vLLM CacheConfig, releases 0.4 to 0.33)."""
_KEY_BYTES: Final = 8


def parse_token_ids(listed: str) -> list[int]:
    """The ids of a list repr such as `[1, 2, 3]` that is known to hold only integers."""
    try:
        return msgspec.json.decode(listed, type=list[int])
    except msgspec.DecodeError:  # numbers that JSON does not allow, such as 007
        return [int(text) for text in listed[1:-1].split(",")]


def chain_token_blocks(
    token_ids: list[int], *, key: bytes, block_tokens: int, adapter: str | None = None
) -> list[int]:
    """(blocks,) unsigned 64-bit keys of the prompt's blocks, a partial last block included.

    Formula: key_i = BLAKE2b-64(run key, key_{i-1} ‖ tokens_i), key_{-1} = hash of the adapter.
    """
    packed = np.asarray(token_ids, dtype="<u8").tobytes()
    step = block_tokens * 8
    previous = hashlib.blake2b((adapter or "").encode(), digest_size=_KEY_BYTES, key=key).digest()
    keys = []
    for start in range(0, len(packed), step):
        chained = previous + packed[start : start + step]
        previous = hashlib.blake2b(chained, digest_size=_KEY_BYTES, key=key).digest()
        keys.append(int.from_bytes(previous, "little"))
    return keys
