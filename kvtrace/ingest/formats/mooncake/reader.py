"""Reads the rows of a Mooncake file, then judges its clock and its block size."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from kvtrace.ingest.blocks.ids import BlockIds
from kvtrace.ingest.blocks.size import judge_blocks
from kvtrace.ingest.contract import ReadContext, Record, Row
from kvtrace.ingest.formats.mooncake.clock import ArrivalClock
from kvtrace.ingest.formats.mooncake.rows import BadFieldError, parse_row
from kvtrace.ingest.formats.mooncake.texts import prompt_of
from kvtrace.ingest.prompts.rows import Prompted, with_blocks


class _MooncakeFile:
    """The rows of one file: their ids make its blocks or, in a file without any, their texts."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._clock, self._ids = ArrivalClock(), BlockIds()
        self._lengths, self._counts = array("q"), array("q")
        self._texts = 0

    def rows(self, records: Iterable[Record]) -> Iterator[Prompted]:
        """Every row, with its prompt where that is to make its blocks."""
        tally = self._context.tally
        for record in records:
            try:
                row = parse_row(record, self._clock, self._ids)
            except BadFieldError as bad:
                tally.reject(record, bad.reason, bad.detail)
                continue
            tally.use()
            if row.block_keys is not None and self._texts:
                row.block_keys = None  # blocks of texts are of another kind
                row.flags = (*row.flags, "block_ids_dropped")
            if row.block_keys is not None and row.prompt_tokens is not None:
                self._lengths.append(row.prompt_tokens)
                self._counts.append(len(row.block_keys))
            wants_text = row.prompt_tokens is None and not self._counts
            prompt = prompt_of(record) if wants_text else None
            self._texts += prompt is not None and self._context.prompt_hasher is not None
            yield row, prompt

    def judge(self) -> None:
        """Write clock, block size and what is odd into the context."""
        context = self._context
        self._clock.judge(context)
        self._ids.judge(context)
        if self._texts and context.prompt_hasher is not None:
            context.prompt_hasher.describe(context)
            return
        judge_blocks(
            context,
            np.frombuffer(self._lengths, dtype=np.int64),
            np.frombuffer(self._counts, dtype=np.int64),
        )


def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """Rows of one file; arrivals, clock and block size are in the context when it ends."""
    file = _MooncakeFile(context)
    yield from with_blocks(file.rows(records), context.prompt_hasher)
    file.judge()
