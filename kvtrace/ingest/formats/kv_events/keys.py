"""What makes two events speak of the same block: keyed chains of token ids, or the engine's hash.

vLLM starts its hash chain from a random value in each process unless PYTHONHASHSEED is set, so the
hashes of two engines do not agree; the token ids that a stored block carries do. Blocks are then
known by their engine's hash inside one engine only: removals, and parents, carry nothing else.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from kvtrace.schema.arrays import IntArray

MAX_KNOWN_BLOCKS: Final = 1 << 20
"""Blocks whose engine's hash is remembered, over all engines of a file (about 200 MB); the one not
stored for the longest time goes first. HBM and DRAM of one engine hold some 100 000."""
_UINT64: Final = (1 << 64) - 1
_KEY_BYTES: Final = 8
_HASH_MARK: Final = b"engine hash\0"
"""In front of an engine's hash, so that it never equals a chain of token ids."""


def engine_hash(value: object) -> int:
    """Low 64 bits of an engine's block hash: a signed or unsigned integer, bytes, or hex text.

    vLLM's own integer form of a sha256 is its low 64 bits too.

    Raises:
        msgspec.ValidationError: it is none of these.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value & _UINT64
    if isinstance(value, bytes) and value:
        return int.from_bytes(value[-8:], "big")
    if isinstance(value, str) and value:
        return _text_hash(value)
    raise msgspec.ValidationError("a block hash is neither a number nor bytes")


def _text_hash(text: str) -> int:
    digits = text.removeprefix("0x")
    try:
        return int.from_bytes(
            bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))[-8:], "big"
        )
    except ValueError:  # a name, such as an object's key in a pool
        hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES)
        return int.from_bytes(hashed.digest(), "big")


@dataclass(slots=True)
class KeyBook:
    """The keys of one file's blocks, and which engine's hash each of them has."""

    key: bytes
    """Of this run, for hashing token ids (`ReadContext.token_key`)."""
    max_known: int = MAX_KNOWN_BLOCKS
    _known: dict[str, dict[int, int]] = field(default_factory=dict)
    """By instance: engine's hash to key, the one stored last at the end."""
    _count: int = 0

    def known(self, instance: str, hashed: int) -> int | None:
        """The key of a block that this instance stored before."""
        return self._known.get(instance, {}).get(hashed)

    def remember(self, instance: str, hashed: int, key: int) -> None:
        """A block that the instance stores now."""
        blocks = self._known.setdefault(instance, {})
        if blocks.pop(hashed, None) is None:
            self._count += 1
        blocks[hashed] = key
        if self._count > self.max_known:
            fullest = max(self._known.values(), key=len)
            del fullest[next(iter(fullest))]
            self._count -= 1

    def forget(self, instance: str) -> None:
        """The instance's process ended: another one hashes anew."""
        self._count -= len(self._known.pop(instance, {}))

    def of_hash(self, hashed: int, namespace: str = "") -> int:
        """Key of a block of which only the engine's hash is known."""
        named = _HASH_MARK + namespace.encode("utf-8", "surrogatepass")
        return self._keyed(named + hashed.to_bytes(8, "little"))

    def root(self, adapter: str | None, *more: str | None) -> int:
        """What a chain without a parent starts from: adapter, and what else parts equal tokens."""
        parts = [adapter or "", *(part for part in more if part)]
        return self._keyed("\0".join(parts).encode("utf-8", "surrogatepass"))

    def chained(
        self, parent: int, token_ids: Sequence[int] | IntArray, extra: object = None
    ) -> int:
        """Key of a block behind the block `parent`, or behind a `root`.

        Formula: BLAKE2b-64(run key, parent ‖ tokens ‖ extra), so that any block can be a parent.
        `extra` is what the engine mixes into the block's hash beside its tokens (images, salts).

        Raises:
            msgspec.ValidationError: a token id does not fit 64 bits.
        """
        try:
            packed = np.asarray(token_ids, dtype="<i8").tobytes()
        except OverflowError as cause:
            raise msgspec.ValidationError("`token_ids` holds an id outside 64 bits") from cause
        return self._keyed(parent.to_bytes(8, "little") + packed + _packed(extra))

    def _keyed(self, data: bytes) -> int:
        digest = hashlib.blake2b(data, digest_size=_KEY_BYTES, key=self.key).digest()
        return int.from_bytes(digest, "little")


def _packed(extra: object) -> bytes:
    try:
        return msgspec.msgpack.encode(extra) if extra else b""
    except (OverflowError, TypeError, ValueError, RecursionError) as cause:
        raise msgspec.ValidationError("`extra_keys` cannot be hashed") from cause


def key_book(token_key: bytes | None) -> KeyBook:
    """A book under the key of the run; without one, under a key that nobody will know."""
    return KeyBook(token_key or secrets.token_bytes(32))
