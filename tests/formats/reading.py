"""Reads a file through one format, as the pipeline does, and checks that no record got lost."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backports import zstd

from kvtrace.ingest.contract import (
    BlockEventRow,
    Format,
    LineTime,
    ReadContext,
    Record,
    RequestRow,
    Row,
    SampleRow,
    Tally,
    TransferRow,
)
from kvtrace.ingest.files.frame import FrameCounts, frame
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.sniff import build_head, recognise
from kvtrace.ingest.textlog.router import LogRouter, RowSink, date_row
from kvtrace.units import NS_PER_S

DATA = Path(__file__).parent / "data"
MODIFIED_AT_NS = 1_767_225_600 * NS_PER_S  # 2026-01-01T00:00:00Z


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reader made of one file."""

    rows: list[Row]
    context: ReadContext
    blank: int

    @property
    def requests(self) -> list[RequestRow]:
        return [row for row in self.rows if isinstance(row, RequestRow)]

    @property
    def samples(self) -> list[SampleRow]:
        return [row for row in self.rows if isinstance(row, SampleRow)]

    @property
    def rejected(self) -> list[tuple[int, str]]:
        """(line, reason) of the rejected records."""
        return [(record.line, reason) for record, reason, _ in self.context.tally.rejects]

    @property
    def ignored(self) -> dict[str, int]:
        return self.context.tally.ignored

    @property
    def note_codes(self) -> set[str]:
        return {note.code for note in self.context.notes}

    @property
    def transfers(self) -> list[TransferRow]:
        return [row for row in self.rows if isinstance(row, TransferRow)]

    @property
    def block_events(self) -> list[BlockEventRow]:
        return [row for row in self.rows if isinstance(row, BlockEventRow)]

    def metric(self, name: str) -> list[float | None]:
        """Values of one metric over all samples, in file order."""
        return [m.value for sample in self.samples for m in sample.metrics if m.metric == name]


def read_bytes(
    entry: Format,
    data: bytes,
    *,
    modified_at_ns: int = MODIFIED_AT_NS,
    tz: str | None = None,
    year: int | None = None,
    block_size_tokens: int | None = None,
    token_key: bytes | None = None,
    prompt_hasher: PromptHasher | None = None,
) -> Reading:
    """All rows of these bytes; fails if a record has no outcome, or two."""
    tally = Tally()
    context = ReadContext(
        path="sample",
        tally=tally,
        modified_at_ns=modified_at_ns,
        tz=tz,
        year=year,
        block_size_tokens=block_size_tokens,
        token_key=token_key,
        prompt_hasher=prompt_hasher,
    )
    counts = FrameCounts()
    delivered: list[Record] = []
    rows = list(entry.read(_counted(data, entry, counts, delivered), context))
    outcomes = tally.used + sum(tally.ignored.values()) + len(tally.rejects)
    assert outcomes == len(delivered), (outcomes, len(delivered))
    offsets = [row.offset for row in rows]
    assert offsets == sorted(offsets), "rows are not in file order"
    return Reading(rows, context, counts.blank)


def read_log(
    formats: Sequence[Format],
    data: bytes,
    *,
    modified_at_ns: int = MODIFIED_AT_NS,
    tz: str | None = None,
    year: int | None = None,
    token_key: bytes | None = None,
) -> dict[str, Reading]:
    """What each dialect made of one text log, by name; all share one tally, as in the pipeline."""
    tally = Tally()
    held: dict[str, list[tuple[Row, LineTime | None]]] = {entry.name: [] for entry in formats}

    def new_context() -> ReadContext:
        return ReadContext("sample", tally, modified_at_ns, tz=tz, year=year, token_key=token_key)

    def new_sink(entry: Format) -> RowSink:
        return lambda row, time: held[entry.name].append((row, time))

    router = LogRouter(formats, tally, new_context=new_context, new_sink=new_sink)
    counts = FrameCounts()
    delivered = list(frame((data,), "lines", counts))
    for record in delivered:
        router.take(record)
    router.finish()
    outcomes = tally.used + sum(tally.ignored.values()) + len(tally.rejects)
    assert outcomes == len(delivered), (outcomes, len(delivered))
    readings: dict[str, Reading] = {}
    for part in router.parts:
        clock = router.clock_of(part)
        rows = sorted(held[part.format.name], key=lambda pair: pair[0].offset)
        for row, time in rows:
            if time is not None:
                date_row(row, clock.resolve(time))
        readings[part.format.name] = Reading([row for row, _ in rows], part.context, counts.blank)
    return readings


def _counted(
    data: bytes, entry: Format, counts: FrameCounts, delivered: list[Record]
) -> list[Record]:
    delivered.extend(frame((data,), entry.framing, counts))
    return delivered


def decoded(path: Path) -> bytes:
    """The decompressed bytes of a file; UTF-16 by its byte order mark becomes UTF-8."""
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    elif data.startswith(b"\x28\xb5\x2f\xfd"):
        data = zstd.decompress(data)
    elif data.startswith(b"BZh"):
        data = bz2.decompress(data)
    elif data.startswith(b"\xfd7zXZ"):
        data = lzma.decompress(data)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16").encode()
    return data


def sniffed(formats: tuple[Format, ...], data: bytes) -> str | None:
    """Name of the format that these bytes are taken for."""
    found = recognise(data, "sample", formats=formats).format
    return found.name if found is not None else None


def confidence(entry: Format, data: bytes) -> float:
    """How sure the format is, 0 if it says no."""
    guess = entry.sniff(build_head(data, "sample"))
    return guess.confidence if guess is not None else 0.0
