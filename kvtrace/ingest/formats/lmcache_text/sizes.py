"""Bytes behind a printed size: `0.5938 gb` is GiB, rounded, and so is the rate beside it.

KV bytes of a token are a whole number with many factors of two (layers × heads × head size ×
bytes), so the two rounded values often leave one such number only. All of it is whole-number
arithmetic: a printed `0.5938` is between 11875 and 11877 halves of its last digit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kvtrace.units import GIB

_MS_PER_S: Final = 1000
_SURE: Final = 8
"""A power of two this many times the width of what is possible is there once by chance at most one
time in eight."""
_MAX_TOKEN_BYTES: Final = 2**31


class _Printed(NamedTuple):
    """A decimal as printed: its digits as one number, and the power of ten to divide it by."""

    digits: int
    scale: int


def _printed(text: str) -> _Printed:
    whole, _, fraction = text.partition(".")
    return _Printed(int(whole + fraction), int(10 ** len(fraction)))


class MovedBytes(NamedTuple):
    """The bytes of one move of one worker."""

    total: int
    token: int | None
    """Bytes a token of this worker; None where the print is too coarse to say."""


def moved_bytes(tokens: int, *, gib: str, cost_ms: str, gib_per_s: str) -> MovedBytes:
    """What `size: x gb, cost y ms, throughput: z GB/s` says; exact where one number only fits."""
    size = _printed(gib)
    token = _token_bytes(tokens, size, _printed(cost_ms), _printed(gib_per_s))
    total = size.digits * GIB // size.scale if token is None else token * tokens
    return MovedBytes(total, token)


def _token_bytes(tokens: int, size: _Printed, cost: _Printed, rate: _Printed) -> int | None:
    if tokens <= 0 or size.digits == 0:
        return None
    divisor = 2 * size.scale * tokens
    first = _ceil((2 * size.digits - 1) * GIB, divisor)
    last = (2 * size.digits + 1) * GIB // divisor
    if cost.digits and rate.digits:
        divisor = 4 * cost.scale * rate.scale * _MS_PER_S * tokens
        low = (2 * cost.digits - 1) * (2 * rate.digits - 1) * GIB
        high = (2 * cost.digits + 1) * (2 * rate.digits + 1) * GIB
        first, last = max(first, _ceil(low, divisor)), min(last, high // divisor)
    if not 0 < first <= last <= _MAX_TOKEN_BYTES:
        return None
    roundest = _roundest(first, last)
    power = roundest & -roundest
    is_sure = first == last or power >= _SURE * (last - first + 1)
    return roundest if is_sure else None


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _roundest(first: int, last: int) -> int:
    """The number between the two with most factors of two: `last` without its varying low bits."""
    shift = ((first - 1) ^ last).bit_length() - 1
    return last >> shift << shift
