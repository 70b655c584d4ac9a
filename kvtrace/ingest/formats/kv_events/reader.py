"""The reader of captured KV events of vLLM, SGLang and the Mooncake master."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import BlockEventRow, Guess, Head, ReadContext, Record
from kvtrace.ingest.formats.kv_events.batches import Batch, parse_batch
from kvtrace.ingest.formats.kv_events.events import (
    EVENT_TYPES,
    EventReader,
    event_type,
    typed_event,
)
from kvtrace.ingest.formats.kv_events.keys import key_book
from kvtrace.ingest.formats.kv_events.streams import StreamBook
from kvtrace.units import NS_PER_S

EPOCH_FROM_NS: Final = 10**9 * NS_PER_S
"""Times from here on (2001) count from the epoch; smaller ones from an unknown instant."""
_PAYLOADS: Final = frozenset({"payload_hex", "payload_b64"})


class _KvEventsFile:
    """What the batches of one file share."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._streams = StreamBook(context.path)
        self._events = EventReader(key_book(context.token_key))
        self._first_ns: int | None = None
        self._unnumbered = 0

    def rows(self, record: Record) -> list[BlockEventRow]:
        """The rows of one record, which gets its outcome here."""
        tally = self._context.tally
        try:
            batch = parse_batch(record.data)
            if batch is None:
                tally.ignore("replay_end")
                return []
            rows = self._take(batch, record)
        except msgspec.ValidationError as bad:
            tally.reject(record, "invalid_field", str(bad))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            tally.reject(record, "damaged_line", None)
        else:
            if rows is None:
                tally.ignore("replayed_batch")
            elif not rows:
                tally.ignore("other_events" if batch.events else "empty_batch")
            else:
                tally.use()
            return rows or []
        return []

    def _take(self, batch: Batch, record: Record) -> list[BlockEventRow] | None:
        """Its rows; None if this batch was here before."""
        events = [typed for raw in batch.events if (typed := typed_event(raw)) is not None]
        stream = self._streams.stream(batch.topic, batch.rank)
        arrival = stream.place(batch.number, batch.at_ns)
        if arrival == "replayed":
            return None
        self._unnumbered += batch.number is None
        self._first_ns = min(self._first_ns or batch.at_ns, batch.at_ns)
        is_restart = arrival == "restart"
        return self._events.rows(batch, events, record, stream.instance, restarted=is_restart)

    def finish(self) -> None:
        """Fill the clock and leave the notes."""
        context = self._context
        is_epoch = (self._first_ns or EPOCH_FROM_NS) >= EPOCH_FROM_NS
        context.clock = "utc" if is_epoch else "relative"
        context.clock_reason = (
            "ts counts seconds from the epoch"
            if is_epoch
            else "ts counts seconds from an unknown instant"
        )
        self._streams.describe(context, "batches")
        if self._unnumbered:
            context.note(
                "kv_events_no_sequence",
                f"Batches without a number (`seq`): {self._unnumbered:,}. Whether some were lost is"
                " unknown.",
            )
        self._describe_keys()
        self._describe_events()

    def _describe_keys(self) -> None:
        counts, note = self._events.counts, self._context.note
        if counts.unknown_parents:
            note(
                "kv_events_parents_unknown",
                f"Stored blocks whose parent was not seen: {counts.unknown_parents:,} (it was"
                " stored before the capture, or lost). They are known by their engine's hash, which"
                " other instances may not share. Pieces of one capture are read apart: join them"
                " first, the oldest in front.",
            )
        if counts.without_tokens:
            note(
                "kv_events_without_tokens",
                f"Stored blocks without token ids: {counts.without_tokens:,}. They are known by"
                " their engine's hash. Instances may not agree on it (vLLM: set the same"
                " PYTHONHASHSEED and --prefix-caching-hash-algo sha256_cbor everywhere).",
            )

    def _describe_events(self) -> None:
        counts, note = self._events.counts, self._context.note
        if counts.other_groups:
            first = ", and rows before it are of a higher group" if counts.late_group else ""
            note(
                "kv_events_groups",
                f"Events of further cache groups left out: {counts.other_groups:,}. They repeat the"
                f" blocks of the lowest group{first}.",
            )
        if counts.unknown_media:
            note(
                "kv_events_medium_unknown",
                f"Events on a medium of an unknown name, left out: {counts.unknown_media:,}.",
            )
        if counts.unknown_types:
            note(
                "kv_events_type_unknown",
                f"Events of an unknown type, left out: {counts.unknown_types:,}.",
            )


def read_kv_events(records: Iterable[Record], context: ReadContext) -> Iterator[BlockEventRow]:
    """The block events of one capture."""
    file = _KvEventsFile(context)
    for record in records:
        yield from file.rows(record)
    file.finish()


def sniff_kv_events(head: Head) -> Guess | None:
    """A file whose JSON objects hold published batches, packed or decoded."""
    objects = head.json_objects
    packed = sum(bool(_PAYLOADS & item.keys()) for item in objects)
    decoded = sum(_is_decoded(item) for item in objects)
    if not packed + decoded or 2 * (packed + decoded) < len(objects):
        return None
    confidence = 0.6 + 0.38 * (packed + decoded) / len(objects)
    how = "a payload_hex or payload_b64" if packed >= decoded else "events with a KV event type"
    return Guess(confidence, f"{packed + decoded} of {len(objects)} records have {how}")


def _is_decoded(item: dict[str, object]) -> bool:
    events = item.get("events")
    payload = item.get("payload")
    if isinstance(payload, dict):
        events = payload.get("events")
    elif isinstance(payload, list) and len(payload) > 1:
        events = payload[1]
    return isinstance(events, list) and any(event_type(one) in EVENT_TYPES for one in events[:8])
