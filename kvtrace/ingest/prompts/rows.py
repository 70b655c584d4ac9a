"""Rows whose prompts are in the log: their block keys, from bytes measured on the first of them.

`prompted_rows` is `json_record_rows` for such logs: `parse` gives each request with its prompt, or
None where the record has none. Prompts whose tokens the log states are held until enough of them
say how many bytes a token has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kvtrace.ingest.contract import ReadContext, Record, RequestRow
from kvtrace.ingest.prompts import Prompt, PromptHasher
from kvtrace.ingest.values.jsonfields import Ignored, json_record_rows
from kvtrace.units import MIB

Prompted = tuple[RequestRow, Prompt | None]
MISMATCH_FLAG: Final = "prompt_text_mismatch"
"""The stated length is that of another text: the prompt in the log is cut, or not all of it."""
_HELD_ROWS: Final = 64
_HELD_BYTES: Final = 32 * MIB


def prompted_rows(
    records: Iterable[Record],
    context: ReadContext,
    parse: Callable[[Record], Sequence[Prompted] | Ignored],
) -> Iterator[RequestRow]:
    """The rows of all records, with block keys. `parse` raises msgspec's errors."""
    yield from with_blocks(json_record_rows(records, context.tally, parse), context.prompt_hasher)
    if context.prompt_hasher is not None:
        context.prompt_hasher.describe(context)


def with_blocks(rows: Iterable[Prompted], hasher: PromptHasher | None) -> Iterator[RequestRow]:
    """The rows in order, with the block keys of their prompts; without a hasher as they are."""
    if hasher is None:
        yield from (row for row, _prompt in rows)
        return
    held: list[Prompted] = []
    size = 0
    is_measuring = hasher.is_holding = hasher.can_calibrate
    for row, prompt in rows:
        if not is_measuring or (prompt is None and not held):
            yield filled(row, prompt, hasher)
            continue
        held.append((row, prompt))
        size += 0 if prompt is None else len(prompt.text)
        if len(held) >= _HELD_ROWS or size > _HELD_BYTES:
            is_measuring = hasher.is_holding = False
            yield from _measured(held, hasher)
            held = []
    yield from _measured(held, hasher)


def note_few_prompts(context: ReadContext, rows_with_blocks: int, rows: int) -> None:
    """Leave the blocks of a file out in which few requests have any."""
    context.found_block_size_tokens = None
    context.note(
        "prompts_in_few_rows",
        f"{rows_with_blocks:,} of {rows:,} requests have a prompt that can be cut into blocks: too"
        " few to say how much is reused. They are kept without blocks.",
    )


def _measured(held: Sequence[Prompted], hasher: PromptHasher) -> Iterator[RequestRow]:
    hasher.calibrate(
        (len(prompt.text), row.prompt_tokens)
        for row, prompt in held
        if prompt is not None and row.prompt_tokens is not None
    )
    for row, prompt in held:
        yield filled(row, prompt, hasher)


def filled(row: RequestRow, prompt: Prompt | None, hasher: PromptHasher) -> RequestRow:
    """The row with the blocks of its prompt, and its length if the log states none."""
    if prompt is None or row.block_keys is not None:
        return row
    made = hasher.blocks(prompt)
    if row.prompt_tokens is None:
        row.prompt_tokens, row.block_keys = made.tokens, made.keys
        row.flags = (*row.flags, *(flag for flag in made.flags if flag not in row.flags))
        return row
    row.block_keys = made.keys_for(row.prompt_tokens)
    if row.block_keys is None:
        row.flags = (*row.flags, MISMATCH_FLAG)
    return row
