"""SipHash-2-4 of every prefix of a text at block boundaries: a keyed 64-bit key a block.

SipHash is a pseudorandom function with a 128-bit key: without the key nobody can try texts out
against the result. It is read here at each block boundary without starting again, so a text is gone
through once. Two implementations give the same keys: plain Python for little text, and one that
numba compiles (its machine code is cached beside the module) for much.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012 (appendix A: test values).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

COMPILE_FROM_BYTES: Final = 96 * 1024
"""Below this plain Python (about 1 MB/s) is quicker than loading the compiler."""
KEY_BYTES: Final = 16
_MASK: Final = (1 << 64) - 1
_WORD_BYTES: Final = 8
_SEEDS: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
"""The constants of SipHash's initial state."""

UIntArray = npt.NDArray[np.uint64]
_State = tuple[int, int, int, int]


def prefix_keys(text: bytes, *, key: bytes, block_bytes: int, compiled: bool) -> UIntArray:
    """(ceil(len / block_bytes),) SipHash-2-4 of the text up to the end of each block.

    `key` has 16 bytes. The last block may be partial. No text has no blocks.
    """
    halves = (
        int.from_bytes(key[:_WORD_BYTES], "little"),
        int.from_bytes(key[_WORD_BYTES:], "little"),
    )
    if not compiled:
        return np.asarray(_plain_keys(text, halves, block_bytes), dtype=np.uint64)
    keys = np.empty(-(-len(text) // block_bytes), dtype=np.uint64)
    start = np.array(
        [half ^ seed for half, seed in zip(halves * 2, _SEEDS, strict=True)], np.uint64
    )
    compiled_kernel()(np.frombuffer(text, dtype=np.uint8), start, block_bytes, keys)
    return keys


def _plain_keys(text: bytes, halves: tuple[int, int], block_bytes: int) -> list[int]:
    first, second, third, fourth = (
        half ^ seed for half, seed in zip(halves * 2, _SEEDS, strict=True)
    )
    state: _State = first, second, third, fourth
    keys: list[int] = []
    at = 0
    for start in range(0, len(text), block_bytes):
        end = min(start + block_bytes, len(text))
        for word_end in range(at + _WORD_BYTES, end + 1, _WORD_BYTES):
            word = int.from_bytes(text[at:word_end], "little")
            state = _absorb(state, word)
            at = word_end
        rest = int.from_bytes(text[at:end], "little") | (end & 0xFF) << 56
        v0, v1, v2, v3 = _absorb(state, rest)
        v0, v1, v2, v3 = _rounds((v0, v1, v2 ^ 0xFF, v3), 4)
        keys.append(v0 ^ v1 ^ v2 ^ v3)
    return keys


def _absorb(state: _State, word: int) -> _State:
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _rounds((v0, v1, v2, v3 ^ word), 2)
    return v0 ^ word, v1, v2, v3


def _rounds(state: _State, count: int) -> _State:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0, v2 = v0 + v1 & _MASK, v2 + v3 & _MASK
        v1, v3 = _rotated(v1, 13) ^ v0, _rotated(v3, 16) ^ v2
        v0, v2 = _rotated(v0, 32) + v3 & _MASK, v2 + v1 & _MASK
        v1, v3 = _rotated(v1, 17) ^ v2, _rotated(v3, 21) ^ v0
        v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _rotated(word: int, bits: int) -> int:
    return word << bits & _MASK | word >> 64 - bits


Kernel = Callable[[npt.NDArray[np.uint8], UIntArray, int, UIntArray], None]


@cache
def compiled_kernel() -> Kernel:
    """Fills the last array with the keys of the first one's prefixes: what `_plain_keys` gives.

    All arithmetic is in uint64, which wraps; every constant is one too, or numba would go over to
    floating point.
    """
    from numba import njit

    word = np.uint64

    @njit(cache=True)
    def rounds(v0, v1, v2, v3, count):  # type: ignore[no-untyped-def]
        for _ in range(count):
            v0 += v1
            v1 = ((v1 << word(13)) | (v1 >> word(51))) ^ v0
            v0 = (v0 << word(32)) | (v0 >> word(32))
            v2 += v3
            v3 = ((v3 << word(16)) | (v3 >> word(48))) ^ v2
            v0 += v3
            v3 = ((v3 << word(21)) | (v3 >> word(43))) ^ v0
            v2 += v1
            v1 = ((v1 << word(17)) | (v1 >> word(47))) ^ v2
            v2 = (v2 << word(32)) | (v2 >> word(32))
        return v0, v1, v2, v3

    @njit(cache=True)
    def kernel(text, start, block_bytes, keys):  # type: ignore[no-untyped-def]
        v0, v1, v2, v3 = start[0], start[1], start[2], start[3]
        at = 0
        for block in range(len(keys)):
            end = min((block + 1) * block_bytes, len(text))
            while at + 8 <= end:
                part = word(0)
                for place in range(8):
                    part |= word(text[at + place]) << word(8 * place)
                v0, v1, v2, v3 = rounds(v0, v1, v2, v3 ^ part, 2)
                v0 ^= part
                at += 8
            part = word(end & 255) << word(56)
            for place in range(end - at):
                part |= word(text[at + place]) << word(8 * place)
            w0, w1, w2, w3 = rounds(v0, v1, v2, v3 ^ part, 2)
            w0, w1, w2, w3 = rounds(w0 ^ part, w1, w2 ^ word(255), w3, 4)
            keys[block] = w0 ^ w1 ^ w2 ^ w3

    return kernel
