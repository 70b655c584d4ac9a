"""The block size that a trace does not state: what all rows together leave open, never guessed.

A prompt of L tokens with k block ids bounds the size b from both sides:

- the tail has an id, k = ceil(L / b): L / k ≤ b < L / (k - 1), no upper bound for k = 1;
- the tail has none, k = floor(L / b): L / (k + 1) < b ≤ L / k, no upper bound for k = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.ingest.contract import ReadContext
from kvtrace.schema.arrays import BoolArray, IntArray

KNOWN_SIZES: Final = (1, 8, 16, 32, 64, 128, 256, 512, 784, 1024, 2048, 4096)
"""Sizes, in tokens, that engines and public traces use (784: pages of a hybrid model)."""
_MIN_AGREEMENT: Final = 0.99
"""Share of rows that must have exactly the blocks that a size implies."""
_ENOUGH_ROWS: Final = 20
"""From here on the only known size in the range is taken, however wide the range is."""
_NARROW: Final = 1.25
"""With fewer rows the range must end below this × its start: known sizes stand further apart, so a
wider one would hold one of them by chance."""
_NO_LIMIT: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Fit:
    """Sizes that enough rows agree with, and the size that most rows agree with.

    Ranges are (first, last); last is `_NO_LIMIT` where nothing bounds it.
    """

    ranges: tuple[tuple[int, int], ...]
    """Of nearly all rows."""
    strict_ranges: tuple[tuple[int, int], ...]
    """Of all rows."""
    best: int
    best_share: float


def judge_blocks(
    context: ReadContext, lengths: IntArray, counts: IntArray, *, column: str = "input_length"
) -> None:
    """Leave the block size in the context, or the reason why there is none.

    `lengths` and `counts` are prompt tokens and block ids of the rows that have both; `column` is
    what the source calls the length.
    """
    if not len(counts) or not counts.any():
        context.evidence_grade = "L"
        if context.tally.used:
            context.note("no_block_ids", "no row has block ids: lengths only, reuse is unknown")
        return
    # A row without ids says nothing: its prompt may be shorter than a block, or its ids unknown.
    telling = counts > 0
    lengths, counts = lengths[telling], counts[telling]
    if context.block_size_tokens is not None:
        _take_forced(context, context.block_size_tokens, lengths, counts)
        return
    fits = (_fit(*_ceil_bounds(lengths, counts)), _fit(*_floor_bounds(lengths, counts)))
    ranges = sorted({bounds for fit in fits for bounds in fit.ranges})
    strict = {size for fit in fits for bounds in fit.strict_ranges for size in bounds}
    size, why = _only_size(ranges, rows=len(counts))
    if size is None and len(strict) == 1:
        (size,) = strict
        why = "no other size fits all rows"
    if size is not None:
        _take_inferred(context, size, (why, column), lengths, counts)
        return
    context.evidence_grade = "L"
    context.note("block_size_unknown", _unknown_size(ranges, fits, len(counts)), severity="warning")


def take_stated(
    context: ReadContext, size: int, whence: str, lengths: IntArray, counts: IntArray
) -> None:
    """Leave a block size that the source states, with the tail as most rows have it."""
    share = _take(context, size, lengths, counts)
    context.block_size_reason = f"{size} from {whence}; {share:.1%} of {len(lengths)} rows agree"


def _ceil_bounds(lengths: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """(rows,) first and last size with ceil(length / size) = count; none: first > last."""
    blocks = np.maximum(counts, 1)
    first = -(-lengths // blocks)
    last = np.where(counts > 1, -(-lengths // np.maximum(counts - 1, 1)) - 1, _NO_LIMIT)
    return np.where(counts > 0, first, _NO_LIMIT), np.where(counts > 0, last, 0)


def _floor_bounds(lengths: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """(rows,) first and last size with floor(length / size) = count; none: first > last."""
    first = lengths // (counts + 1) + 1
    return first, np.where(counts > 0, lengths // np.maximum(counts, 1), _NO_LIMIT)


def _fit(first: IntArray, last: IntArray) -> _Fit:
    """The sizes inside enough of the ranges [first, last]: only at their ends does that change."""
    rows = len(first)
    is_open = first <= last
    first, last = np.sort(np.maximum(first[is_open], 1)), np.sort(last[is_open])
    ends = last[last < _NO_LIMIT] + 1
    steps = np.unique(np.concatenate([first, ends]))
    if not len(steps):
        return _Fit((), (), 0, 0.0)
    held = np.searchsorted(first, steps, side="right") - np.searchsorted(last, steps, side="left")
    best = int(held.argmax())
    return _Fit(
        ranges=_ranges(steps, held >= _MIN_AGREEMENT * rows),
        strict_ranges=_ranges(steps, held == rows),
        best=int(steps[best]),
        best_share=int(held[best]) / rows,
    )


def _ranges(steps: IntArray, enough: BoolArray) -> tuple[tuple[int, int], ...]:
    """Consecutive steps that hold enough rows, as (first, last) size."""
    untils = np.append(steps[1:] - 1, _NO_LIMIT)
    ranges: list[tuple[int, int]] = []
    for start, until in zip(steps[enough].tolist(), untils[enough].tolist(), strict=True):
        if ranges and ranges[-1][1] == start - 1:
            ranges[-1] = (ranges[-1][0], until)
        else:
            ranges.append((start, until))
    return tuple(ranges)


def _only_size(ranges: Sequence[tuple[int, int]], *, rows: int) -> tuple[int | None, str]:
    """The size that the ranges leave, and why it is that one; None if several could be it."""
    if not ranges:
        return None, ""
    first, last = ranges[0][0], max(until for _, until in ranges)
    if first == last:
        return first, "no other size fits"
    known = [size for size in KNOWN_SIZES if any(low <= size <= high for low, high in ranges)]
    if len(known) == 1 and (rows >= _ENOUGH_ROWS or last < _NARROW * first):
        return known[0], f"of the sizes that fit, {_range_text(ranges)}, only it is in use"
    return None, ""


def _range_text(ranges: Sequence[tuple[int, int]]) -> str:
    first, last = ranges[0][0], max(until for _, until in ranges)
    return f"{first} and more" if last == _NO_LIMIT else f"{first} to {last}"


def _agreement(lengths: IntArray, counts: IntArray, size: int) -> tuple[float, float]:
    """Share of rows with ceil(length / size) blocks, and with floor(length / size)."""
    rows = max(len(counts), 1)
    ceil = np.count_nonzero((lengths + size - 1) // size == counts) / rows
    floor = np.count_nonzero(lengths // size == counts) / rows
    return ceil, floor


def _take_forced(context: ReadContext, size: int, lengths: IntArray, counts: IntArray) -> None:
    share = _take(context, size, lengths, counts)
    context.block_size_reason = f"given; {share:.1%} of {len(lengths)} rows agree"
    if share < _MIN_AGREEMENT:
        context.note(
            "block_size_disagrees",
            f"a block size of {size} tokens was given, but only {share:.1%} of the rows with "
            "block ids have the blocks that it implies; the others lose their blocks",
            severity="warning",
        )


def _take_inferred(
    context: ReadContext, size: int, told: tuple[str, str], lengths: IntArray, counts: IntArray
) -> None:
    share = _take(context, size, lengths, counts)
    why, column = told
    how = "floor" if context.partial_tail == "dropped" else "ceil"
    context.block_size_reason = (
        f"inferred: {how}({column} / {size}) equals the number of block ids in "
        f"{share:.1%} of {len(lengths)} rows, and {why}"
    )
    context.note("block_size_inferred", f"block size {size} tokens, {context.block_size_reason}")


def _take(context: ReadContext, size: int, lengths: IntArray, counts: IntArray) -> float:
    """Take the size, with the tail as most rows have it; the share of rows that agree."""
    ceil, floor = _agreement(lengths, counts, size)
    context.found_block_size_tokens = size
    if ceil >= floor:
        has_tails = bool(np.any(lengths % size))
        context.partial_tail = "counted" if has_tails else "none"
    else:
        context.partial_tail = "dropped"
    return max(ceil, floor)


def _unknown_size(ranges: Sequence[tuple[int, int]], fits: Sequence[_Fit], rows: int) -> str:
    hint = "state it with `--block-size N`"
    if ranges:
        return (
            f"the block size cannot be told from {rows} rows ({_range_text(ranges)} tokens fit), "
            f"so block ids are not used; {hint}"
        )
    best = max(fits, key=lambda fit: fit.best_share)
    return (
        f"no block size fits 99 % of {rows} rows (nearest: {best.best} tokens, "
        f"{best.best_share:.0%}), so block ids are not used; {hint}"
    )
