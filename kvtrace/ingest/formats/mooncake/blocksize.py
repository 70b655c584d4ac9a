"""The block size of a Mooncake file: inferred from all rows and checked, never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kvtrace.ingest.contract import ReadContext
from kvtrace.schema.arrays import IntArray

BLOCK_SIZES: Final = (1, 8, 16, 32, 64, 128, 256, 512, 784, 1024, 2048, 4096)
"""Sizes, in tokens, that engines and public traces use (784: pages of a hybrid model)."""
_MIN_AGREEMENT: Final = 0.99
"""Share of rows that must have exactly the blocks that a size implies."""


def judge_blocks(context: ReadContext, lengths: IntArray, counts: IntArray) -> None:
    """Leave the block size in the context, or the reason why there is none.

    `lengths` and `counts` are prompt tokens and block ids of the rows that have both.
    """
    if not len(counts) or not counts.any():
        context.evidence_grade = "L"
        if context.tally.used:
            context.note("no_block_ids", "no row has block ids: lengths only, reuse is unknown")
        return
    # A row of zero tokens without blocks fits every size and says nothing.
    telling = (lengths > 0) | (counts > 0)
    lengths, counts = lengths[telling], counts[telling]
    sizes = (context.block_size_tokens,) if context.block_size_tokens else BLOCK_SIZES
    fits = {size: _agreement(lengths, counts, size) for size in sizes}
    if context.block_size_tokens is not None:
        _take_forced(context, context.block_size_tokens, fits, lengths)
        return
    fitting = [size for size, fit in fits.items() if max(fit) >= _MIN_AGREEMENT]
    if len(fitting) == 1:
        _take_inferred(context, fitting[0], fits, lengths)
        return
    context.evidence_grade = "L"
    context.note("block_size_unknown", _unknown_size(fits, fitting, len(counts)))


def _agreement(
    lengths: IntArray,
    counts: IntArray,
    size: int,
) -> tuple[float, float]:
    """Share of rows with ceil(length / size) blocks, and with floor(length / size)."""
    rows = max(len(counts), 1)
    ceil = np.count_nonzero((lengths + size - 1) // size == counts) / rows
    floor = np.count_nonzero(lengths // size == counts) / rows
    return ceil, floor


def _take_forced(
    context: ReadContext,
    size: int,
    fits: dict[int, tuple[float, float]],
    lengths: IntArray,
) -> None:
    _take(context, size, fits[size], lengths)
    share = max(fits[size])
    context.block_size_reason = f"given; {share:.1%} of {len(lengths)} rows agree"
    if share < _MIN_AGREEMENT:
        context.note(
            "block_size_disagrees",
            f"a block size of {size} tokens was given, but only {share:.1%} of the rows with "
            "block ids have the blocks that it implies; the others lose their blocks",
        )


def _take_inferred(
    context: ReadContext,
    size: int,
    fits: dict[int, tuple[float, float]],
    lengths: IntArray,
) -> None:
    _take(context, size, fits[size], lengths)
    how = "floor" if context.partial_tail == "dropped" else "ceil"
    context.block_size_reason = (
        f"inferred: {how}(input_length / {size}) equals the number of block ids in "
        f"{max(fits[size]):.1%} of {len(lengths)} rows, and no other size fits"
    )
    context.note("block_size_inferred", f"block size {size} tokens, {context.block_size_reason}")


def _take(
    context: ReadContext,
    size: int,
    fit: tuple[float, float],
    lengths: IntArray,
) -> None:
    ceil, floor = fit
    context.found_block_size_tokens = size
    if ceil >= floor:
        has_tails = bool(np.any(lengths % size))
        context.partial_tail = "counted" if has_tails else "none"
    else:
        context.partial_tail = "dropped"


def _unknown_size(fits: dict[int, tuple[float, float]], fitting: Sequence[int], rows: int) -> str:
    hint = "state it with `--block-size N`"
    if fitting:
        names = ", ".join(map(str, fitting))
        return (
            f"the block size cannot be told from {rows} rows (these fit: {names} tokens), so "
            f"block ids are not used; {hint}"
        )
    best = max(fits, key=lambda size: max(fits[size]))
    return (
        f"no block size fits 99 % of {rows} rows (nearest: {best} tokens, "
        f"{max(fits[best]):.0%}), so block ids are not used; {hint}"
    )
