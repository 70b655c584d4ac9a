"""Cache-event batches that LMCache servers send to their coordinator (HTTP or Kafka), as JSON.

Shapes read from LMCache 0.5 (`lmcache/v1/mp_coordinator/api.py`): one object a batch, or an
envelope with a list of them. A key is a chunk of one rank and one object group; its hash is chained
over the prefix and the same on every server. Rank and group with the lowest number count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.clocks import seconds_to_ns
from kvtrace.ingest.contract import (
    BlockChange,
    BlockEventRow,
    Guess,
    Head,
    Medium,
    ReadContext,
    Record,
)
from kvtrace.ingest.formats.kv_events.keys import KeyBook, engine_hash, key_book
from kvtrace.ingest.formats.kv_events.streams import Stream, StreamBook
from kvtrace.ingest.values.limits import MAX_COUNT

_CHANGES: Final[dict[str, BlockChange]] = {"store": "stored", "delete": "removed"}
_DISK_BACKENDS: Final = frozenset(
    {"disk", "fs", "fs_native", "gds", "hf3fs", "local_disk", "nvme", "posix", "raw_block", "ssd"}
)
"""Backends of a private second level that are storage of the node; all others are remote."""
_TIERS: Final = frozenset({"l1", "l2"})
_RANK_SHIFT: Final = 16
_NUMBERED: Final = ("instance_id", "incarnation", "seq", "event_type", "tier")


class _Key(msgspec.Struct, gc=False):
    chunk_hash_hex: str
    model_name: str = ""
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""

    @property
    def rank(self) -> int:
        """Global rank: the second of the four bytes that make `kv_rank`."""
        return (self.kv_rank >> _RANK_SHIFT) & 0xFF


class _Entry(msgspec.Struct, gc=False):
    key: _Key
    token_ids: list[int] = []


class _Batch(msgspec.Struct, gc=False):
    instance_id: str
    incarnation: int
    seq: int
    event_type: str
    tier: str
    backend: str = ""
    entries: list[_Entry] = []
    shared: bool = False
    ts: Decimal = Decimal(0)


class _Envelope(msgspec.Struct, gc=False):
    batches: list[_Batch] | None = None
    events: list[_Batch] | None = None


_BATCH: Final = msgspec.json.Decoder(_Batch)
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


@dataclass(slots=True)
class _Server:
    """One LMCache server over its restarts."""

    stream: Stream
    incarnation: int


class _LmcacheFile:
    """What the batches of one file share."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._streams = StreamBook(context.path)
        self._servers: dict[str, _Server] = {}
        self._book: KeyBook = key_book(context.token_key)
        self._lowest: tuple[int, int] | None = None
        self._other_keys = 0

    def rows(self, record: Record) -> list[BlockEventRow]:
        """The rows of one record, which gets its outcome here."""
        tally = self._context.tally
        rows: list[BlockEventRow] = []
        why = "empty_batch"
        try:
            for batch in _batches(record.data):
                taken = self._take(batch, record)
                if isinstance(taken, str):
                    why = taken
                else:
                    rows += taken
        except msgspec.ValidationError as bad:
            tally.reject(record, "invalid_field", str(bad))
            return []
        except (msgspec.DecodeError, RecursionError):
            tally.reject(record, "damaged_line", None)
            return []
        if rows:
            tally.use()
        else:
            tally.ignore(why)
        return rows

    def _take(self, batch: _Batch, record: Record) -> list[BlockEventRow] | str:
        """The rows of one batch, or why there are none."""
        at_ns = _checked(batch)
        server = self._server(batch)
        if batch.incarnation < server.incarnation:
            return "stale_batch"
        writer = _Writer(batch, record, server.stream.instance, at_ns)
        if batch.incarnation > server.incarnation:
            server.incarnation = batch.incarnation
            _start_over(server.stream)
            writer.add("cleared", None, None)
        if server.stream.place(batch.seq, None) == "replayed":
            return "replayed_batch"
        change = _CHANGES.get(batch.event_type)
        if change is None:
            return writer.rows or f"{_reason(batch.event_type)}_event"
        medium = _medium(batch)
        for entry in batch.entries:
            if not self._is_other_part(entry.key):
                key = self._book.of_hash(
                    engine_hash(entry.key.chunk_hash_hex), _namespace(entry.key)
                )
                is_stored = change == "stored"
                writer.add(change, key, medium, len(entry.token_ids) or None if is_stored else None)
        return writer.rows or "other_rank"

    def _server(self, batch: _Batch) -> _Server:
        server = self._servers.get(batch.instance_id)
        if server is None:
            stream = self._streams.stream(batch.instance_id, None)
            server = self._servers[batch.instance_id] = _Server(stream, batch.incarnation)
        return server

    def _is_other_part(self, key: _Key) -> bool:
        """Whether the key holds another rank's or group's part of chunks that are counted."""
        part = (key.rank, key.object_group_id)
        if self._lowest is None or part < self._lowest:
            self._lowest = part
        self._other_keys += part > self._lowest
        return part > self._lowest

    def finish(self) -> None:
        """Fill the clock and leave the notes."""
        context = self._context
        context.clock, context.clock_reason = "utc", "ts counts seconds from the epoch"
        context.engine = "lmcache"
        self._streams.describe(context, "batches")
        if self._other_keys:
            context.note(
                "kv_events_groups",
                f"Keys of further ranks or object groups left out: {self._other_keys:,}. They are"
                " parts of the chunks that are counted.",
            )


def _start_over(stream: Stream) -> None:
    """A new process numbers its batches anew."""
    stream.lost_before, stream.gaps, stream.last = stream.lost, [], None
    stream.restarts += 1


def _batches(data: bytes) -> list[_Batch]:
    """The batches of one record."""
    try:
        return [_BATCH.decode(data)]
    except msgspec.ValidationError:
        envelope = _ENVELOPE.decode(data)
        found = envelope.batches if envelope.batches is not None else envelope.events
        if found is None:
            raise
        return found


def _checked(batch: _Batch) -> int | None:
    """Time of a batch in ns, None where it says 0 (unknown).

    Raises:
        msgspec.ValidationError: a field is out of range.
    """
    if batch.tier not in _TIERS:
        raise msgspec.ValidationError("`tier` is neither l1 nor l2")
    if not (0 <= batch.incarnation <= MAX_COUNT and 1 <= batch.seq <= MAX_COUNT):
        raise msgspec.ValidationError("`incarnation` or `seq` is out of range")
    at_ns = seconds_to_ns(batch.ts)
    if at_ns is None or at_ns < 0:
        raise msgspec.ValidationError("`ts` is no time in seconds")
    return at_ns or None


def _medium(batch: _Batch) -> Medium:
    """Where a level is: the first in the host's memory, unless several servers share it."""
    if batch.shared:
        return "remote"
    if batch.tier == "l1":
        return "host"
    return "disk" if batch.backend.lower() in _DISK_BACKENDS else "remote"


def _namespace(key: _Key) -> str:
    return f"{key.model_name}\0{key.cache_salt}"


def _reason(event_type: str) -> str:
    return event_type if event_type in ("access", "config") else "unknown"


class _Writer:
    """Collects the rows of one batch."""

    def __init__(self, batch: _Batch, record: Record, instance: str, at_ns: int | None) -> None:
        self._batch, self._record = batch, record
        self._instance, self._at_ns = instance, at_ns
        self.rows: list[BlockEventRow] = []

    def add(
        self,
        change: BlockChange,
        key: int | None,
        medium: Medium | None,
        block_tokens: int | None = None,
    ) -> None:
        self.rows.append(
            BlockEventRow(
                offset=self._record.offset,
                line=self._record.line,
                observed_at_ns=self._at_ns,
                instance=self._instance,
                sequence=self._batch.seq,
                change=change,
                block_key=key,
                block_tokens=block_tokens,
                medium=medium,
            )
        )


def read_lmcache(records: Iterable[Record], context: ReadContext) -> Iterator[BlockEventRow]:
    """The block events of one file."""
    file = _LmcacheFile(context)
    for record in records:
        yield from file.rows(record)
    file.finish()


def sniff_lmcache(head: Head) -> Guess | None:
    """A file whose JSON objects are cache-event batches, or envelopes of them."""
    objects = head.json_objects
    ours = sum(_is_batch(item) for item in objects)
    if not ours or 2 * ours < len(objects):
        return None
    confidence = 0.6 + 0.38 * ours / len(objects)
    return Guess(confidence, f"{ours} of {len(objects)} records have {', '.join(_NUMBERED)}")


def _is_batch(item: dict[str, object]) -> bool:
    for name in ("batches", "events"):
        listed = item.get(name)
        if isinstance(listed, list) and listed and isinstance(listed[0], dict):
            item = listed[0]
    return item.keys() >= set(_NUMBERED)
