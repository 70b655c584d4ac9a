"""Reads the rows of a Mooncake file, then judges its clock and its block size."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from kvtrace.ingest.blockids import BlockIds
from kvtrace.ingest.blocksize import judge_blocks
from kvtrace.ingest.contract import ReadContext, Record, Row
from kvtrace.ingest.formats.mooncake.clock import ArrivalClock
from kvtrace.ingest.formats.mooncake.rows import BadFieldError, parse_row


def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """Rows of one file; arrivals, clock and block size are in the context when it ends."""
    clock, ids = ArrivalClock(), BlockIds()
    lengths, counts = array("q"), array("q")
    tally = context.tally
    for record in records:
        try:
            row = parse_row(record, clock, ids)
        except BadFieldError as bad:
            tally.reject(record, bad.reason, bad.detail)
            continue
        tally.use()
        if row.block_keys is not None and row.prompt_tokens is not None:
            lengths.append(row.prompt_tokens)
            counts.append(len(row.block_keys))
        yield row
    clock.judge(context)
    ids.judge(context)
    judge_blocks(
        context, np.frombuffer(lengths, dtype=np.int64), np.frombuffer(counts, dtype=np.int64)
    )
