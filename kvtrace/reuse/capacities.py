"""Capacities of a cache in blocks, from what a person types: blocks, bytes, or a share."""

from __future__ import annotations

from typing import Final

from kvtrace.errors import UsageError
from kvtrace.units import parse_bytes

ROUND_DIGITS: Final = (1, 2, 5)
_EXAMPLE: Final = "--capacity 10000,50GiB,10%"


def parse_capacities(
    text: str, *, distinct_blocks: int, block_bytes: float | None
) -> tuple[int, ...]:
    """Capacities in whole blocks, ascending, each once: `10000` blocks, `50GiB`, or `10%`.

    A share is one of the distinct blocks. What is not a whole block is rounded down, to 1 at least.
    `block_bytes` are the KV bytes of a full block; null: not known.

    Raises:
        UsageError: KVT-U040 not a capacity, KVT-U041 bytes without a known block size in bytes, or
            KVT-U002 bytes of an unclear unit.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise _fault(text)
    return tuple(
        sorted({max(1, int(_blocks(word, distinct_blocks, block_bytes))) for word in words})
    )


def round_capacities(least: int, most: int) -> tuple[int, ...]:
    """The numbers 1, 2, 5, 10, 20, 50 … from `least` on, below `most`."""
    found: list[int] = []
    power = 1
    while power < most:
        found += [digit * power for digit in ROUND_DIGITS if least <= digit * power < most]
        power *= 10
    return tuple(found)


def blocks_of_bytes(capacity_bytes: float, block_bytes: float) -> int:
    """Whole blocks of `block_bytes` that fit into `capacity_bytes`."""
    return int(capacity_bytes // block_bytes) if block_bytes > 0 else 0


def _blocks(word: str, distinct_blocks: int, block_bytes: float | None) -> float:
    if word.endswith("%"):
        share = _number(word[:-1], word)
        if share > 100:
            raise _fault(word)
        return distinct_blocks * share / 100
    if word[0].isdigit() and word[-1].isalpha():
        room = parse_bytes(word)
        if block_bytes is None:
            raise UsageError(
                "KVT-U041",
                f"`{word}` cannot be turned into blocks: the KV bytes of a block are not known",
                hint="state the LLM, as `--llm Meta-Llama-3.1-70B`, or give blocks",
            )
        return _positive(blocks_of_bytes(room, block_bytes), word)
    number = _number(word, word)
    if number != int(number):
        raise _fault(word)
    return number


def _number(digits: str, word: str) -> float:
    try:
        value = float(digits.replace("_", ""))
    except ValueError:
        raise _fault(word) from None
    return _positive(value, word)


def _positive(value: float, word: str) -> float:
    if not 0 < value < float("inf"):
        raise _fault(word)
    return value


def _fault(word: str) -> UsageError:
    return UsageError(
        "KVT-U040",
        f"`{word}` is not a capacity",
        cause="a capacity is whole blocks or bytes above zero, or a share up to 100 %",
        hint=f"`{_EXAMPLE}`",
    )
