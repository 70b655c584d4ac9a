"""What the workers of one engine print of one movement, pooled: tokens once, bytes of all ranks.

Every tensor-parallel worker writes a line of its own for the same tokens; a prompt that is computed
in chunks is stored in as many steps, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import LineTime, Record, TransferRow
from kvtrace.ingest.formats.lmcache_text.messages import Move

Worker = tuple[str | None, str | None, int]
"""(process as printed, KV group, copy: several ranks may print under one name)"""
Step = tuple[int, int, int | None]
"""What one line is told from a repeated one by: tokens, wanted, skipped or total."""
_MAX_STEPS: Final = 1_024
_MAX_SHARES: Final = 1_024


@dataclass(slots=True)
class _Share:
    """The lines of one worker, added up."""

    tokens: int = 0
    wanted: int = 0
    moved_bytes: int = 0
    duration_ns: int = 0
    unsized_lines: int = 0
    lines: dict[Step, bool] = field(default_factory=dict)
    """Whether the line had a size."""

    def add(self, move: Move, step: Step) -> None:
        if len(self.lines) >= _MAX_STEPS:
            self.lines.clear()
        self.lines[step] = move.size is not None
        self.tokens += move.tokens
        self.wanted += move.wanted_tokens
        self.unsized_lines += move.size is None
        self._measure(move)

    def complete(self, move: Move, step: Step) -> None:
        """The line comes again, this time with its size."""
        self.lines[step] = True
        self.unsized_lines -= 1
        self._measure(move)

    def _measure(self, move: Move) -> None:
        if move.size is not None and move.duration_ns is not None:
            self.moved_bytes += move.size.total
            self.duration_ns += move.duration_ns


class PooledMove:
    """One movement of one request (or of nobody known), in either direction."""

    def __init__(self, direction: Literal["load", "store"], record: Record, time: LineTime) -> None:
        self.direction: Literal["load", "store"] = direction
        self.offset, self.line, self.time = record.offset, record.line, time
        self.first_ns = 0
        self.backend: str | None = None
        self.fetched_chunks = 0
        self._shares: dict[Worker, _Share] = {}
        self._first: Step | None = None

    def begins_with(self, step: Step) -> bool:
        """Whether its first line had these numbers."""
        return self._first == step

    def lacks_size(self, writer: str | None, step: Step) -> bool:
        """Whether this process told of this step without its size."""
        share = self._shares.get((writer, None, 0))
        return share is not None and share.lines.get(step) is False

    def add(self, move: Move, writer: str | None, step: Step) -> None:
        """Take one line of one worker."""
        if self._first is None:
            self._first, self.first_ns = step, move.duration_ns or 0
        copy = 0
        while (share := self._shares.get((writer, move.group, copy))) is not None:
            had_size = share.lines.get(step)
            if had_size is None:
                break
            if had_size is not (move.size is not None):
                if not had_size:
                    share.complete(move, step)
                return  # at DEBUG a load is told twice, the first time without its size
            if writer is not None or step[2] is None:
                break
            copy += 1  # the same step again: another rank, whose process has no name
        if share is None:
            if len(self._shares) >= _MAX_SHARES:
                return
            share = self._shares[(writer, move.group, copy)] = _Share()
        share.add(move, step)

    def pool(self, duration_ns: int, tokens: int) -> None:
        """A rank told of its tokens without their size, as the multiprocess server does."""
        if len(self._shares) < _MAX_SHARES:
            share = _Share(tokens=tokens, wanted=tokens, duration_ns=duration_ns, unsized_lines=1)
            self._shares[(None, None, len(self._shares))] = share
        self.first_ns = self.first_ns or duration_ns

    @property
    def is_of_worker(self) -> bool:
        """Whether workers of an engine told of it, not the multiprocess server."""
        return self._first is not None

    @property
    def ranks(self) -> int:
        """Ranks that told of it."""
        return len({(writer, copy) for writer, _group, copy in self._shares})

    @property
    def tokens(self) -> int:
        """Tokens moved, ranks and groups counted once."""
        return next(iter(self._shares.values())).tokens

    @property
    def missing_tokens(self) -> int:
        """Tokens that were wanted and did not come, on the rank that lacks most."""
        return max(share.wanted - share.tokens for share in self._shares.values())

    def row(self, request_id: str | None, path: str | None) -> TransferRow:
        """The movement as a row; bytes are those of the ranks that printed them all."""
        ranks: dict[tuple[str | None, int], list[_Share]] = {}
        for (writer, _group, copy), share in self._shares.items():
            ranks.setdefault((writer, copy), []).append(share)
        sized = [
            shares for shares in ranks.values() if not any(share.unsized_lines for share in shares)
        ]
        times = [sum(share.duration_ns for share in shares) for shares in ranks.values()]
        return TransferRow(
            offset=self.offset,
            line=self.line,
            request_id=request_id,
            started_at_ns=None,
            direction=self.direction,
            path=path,
            moved_bytes=_int64(sum(s.moved_bytes for shares in sized for s in shares))
            if sized
            else None,
            moved_tokens=_int64(self.tokens),
            duration_ns=_int64(max(times)) if max(times) else None,
            ranks=len(sized) or len(ranks),
        )


def _int64(value: int) -> int | None:
    """A sum that fits the table; one that does not is no measurement."""
    return value if value <= INT64_MAX else None
