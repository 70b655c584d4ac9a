"""One sample through one format, as the pipeline reads a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvtrace.ingest.contract import (
    BlockEventRow,
    Format,
    ReadContext,
    Record,
    RequestRow,
    Row,
    SampleRow,
    Tally,
    TransferRow,
)
from kvtrace.ingest.files.decompress import DecodedStream
from kvtrace.ingest.files.frame import FrameCounts, frame
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.sniff import is_spread_json
from kvtrace.units import NS_PER_S

Sample = bytes | str | Path
"""The bytes of a log, or the path of one (plain or compressed)."""
MODIFIED_AT_NS: Final = 1_767_225_600 * NS_PER_S
"""When samples were last written, for clocks without a year: 2026-01-01."""
_SALT: Final = b"the salt of all conformance runs"
_KINDS: Final = (RequestRow, TransferRow, BlockEventRow)
_HELPERS: Final = frozenset({"offset", "line", "unsettled", "is_benchmark", "flags", "ttft_from"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What a format made of a sample."""

    rows: tuple[Row, ...]
    context: ReadContext
    records: int
    """Records that the reader took; blank ones never reach it."""
    blank: int

    @property
    def requests(self) -> tuple[RequestRow, ...]:
        """The rows that are requests."""
        return tuple(row for row in self.rows if isinstance(row, RequestRow))

    @property
    def outcomes(self) -> int:
        """Outcomes on the tally: used, ignored and rejected records."""
        tally = self.context.tally
        return tally.used + sum(tally.ignored.values()) + len(tally.rejects)

    def filled(self) -> set[str]:
        """Columns and metrics with a known value in any row."""
        found: set[str] = set()
        for row in self.rows:
            if isinstance(row, SampleRow):
                found |= {one.metric for one in row.metrics if one.value is not None}
                continue
            kind = next(one for one in _KINDS if isinstance(row, one))
            found |= {
                name
                for name in kind.__struct_fields__
                if name not in _HELPERS and getattr(row, name) is not None
            }
        return found

    def filled_of_requests(self) -> set[str]:
        """Columns with a known value in any request."""
        return replace(self, rows=self.requests).filled()


def sample_bytes(sample: Sample) -> bytes:
    """The decoded bytes of a sample."""
    if isinstance(sample, bytes):
        return sample
    with Path(sample).open("rb") as raw:
        return b"".join(DecodedStream(raw))


def records_of(entry: Format, data: bytes) -> tuple[list[Record], int]:
    """The framed records of these bytes, and how many were blank."""
    framing = entry.framing
    if framing == "lines" and entry.dialect is None and is_spread_json(data):
        framing = "json"
    counts = FrameCounts()
    return list(frame((data,) if data else (), framing, counts)), counts.blank


def read_sample(entry: Format, sample: Sample, *, salt: bytes = _SALT) -> Reading:
    """All rows of a sample; what the reader raises is raised."""
    records, blank = records_of(entry, sample_bytes(sample))
    return read_records(entry, records, blank=blank, salt=salt)


def read_records(
    entry: Format, records: Iterable[Record], *, blank: int = 0, salt: bytes = _SALT
) -> Reading:
    """All rows of these records."""
    taken = list(records)
    hasher = KeyedHasher(salt)
    key = hasher.key_of("tokens")
    context = ReadContext(
        path="sample",
        tally=Tally(),
        modified_at_ns=MODIFIED_AT_NS,
        token_key=key,
        prompt_hasher=PromptHasher(key, block_tokens=None, tokenizer=None, bytes_per_token=None),
    )
    rows = tuple(entry.read(iter(taken), context))
    return Reading(rows, context, len(taken), blank)
