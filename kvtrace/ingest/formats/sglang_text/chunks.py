"""Prefill lines that go on with a prompt begun on an earlier line: they are no new requests."""

from __future__ import annotations

from typing import Final

from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.formats.sglang_text.batches import Batch
from kvtrace.ingest.formats.sglang_text.ranks import EngineKey

_CHUNK_STEP: Final = 1024
_LEAST_CHUNK: Final = 2048
"""Chunk sizes are set in steps of 1 024 tokens, 2 048 or more (--chunked-prefill-size)."""


class ChunkWatch:
    """Counts continuations, per engine, from what the line before says."""

    def __init__(self) -> None:
        self._last: dict[EngineKey, Batch] = {}
        self.continuations = 0

    def see(self, batch: Batch, key: EngineKey) -> None:
        """Take in the next prefill line of an engine."""
        before = self._last.get(key)
        self._last[key] = batch
        if before is not None and _goes_on(before, batch):
            self.continuations += 1

    def restart(self) -> None:
        """The server started again."""
        self._last.clear()

    def fill(self, context: ReadContext) -> None:
        """Say how many sequences were counted again."""
        if self.continuations:
            context.engine_facts["chunk_continuation_lines"] = self.continuations
            context.note(
                "chunks_counted_again",
                f"{self.continuations} prefill lines go on with a prompt that an earlier line"
                " began; new requests of batches count its sequence again.",
            )


def _goes_on(before: Batch, batch: Batch) -> bool:
    """Pending tokens tell (0.5.11 on); before, a full chunk and then nothing cached."""
    pending = before.count("#pending-token")
    if pending is not None:
        return pending > 0
    new = before.count("#new-token") or 0
    is_full_chunk = new >= _LEAST_CHUNK and new % _CHUNK_STEP == 0
    return is_full_chunk and batch.count("#cached-token") == 0
