"""KV cache events of TensorRT-LLM: `get_kv_cache_events()`, POST /kv_cache_events of trtllm-serve.

Shapes read from `KVCacheEventSerializer` of TensorRT-LLM 0.20 to 1.2. Events have no clock, only a
number; a level of the cache is 0 for HBM and 1 for the host. Models with several attention windows
report each block once a window: the largest window, which holds all blocks, counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from kvtrace.ingest.contract import (
    BlockEventRow,
    Guess,
    Head,
    Medium,
    Metric,
    ReadContext,
    Record,
    SampleRow,
)
from kvtrace.ingest.formats.kv_events.keys import engine_hash, key_book
from kvtrace.ingest.formats.kv_events.streams import Stream, StreamBook
from kvtrace.ingest.values.limits import MAX_COUNT

_LEVELS: Final[dict[int | None, Medium | None]] = {0: "device", 1: "host"}
_TYPES: Final = frozenset({"created", "stored", "removed", "updated"})


class _Token(msgspec.Struct, gc=False):
    token_id: int
    token_extra_id: int = 0


class _Block(msgspec.Struct, gc=False):
    block_hash: int
    tokens: list[_Token] = []
    cache_level: int | None = None
    lora_id: int | None = None
    cache_salt: str | None = None
    mm_keys: object = None


class _Diff(msgspec.Struct, gc=False):
    new_value: int | None = None
    old_value: int | None = None


class _Data(msgspec.Struct, gc=False):
    type: str
    num_blocks_per_cache_level: list[int] = []
    parent_hash: int | None = None
    blocks: list[_Block] = []
    block_hashes: list[int] = []
    block_hash: int | None = None
    cache_level: _Diff | None = None


class _Event(msgspec.Struct, gc=False):
    event_id: int
    data: _Data
    window_size: int | None = None
    attention_dp_rank: int | None = None


_DECODER: Final = msgspec.json.Decoder(_Event)
_Row = BlockEventRow | SampleRow


class _TrtFile:
    """What the events of one file share."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._streams = StreamBook(context.path)
        self._book = key_book(context.token_key)
        self._window: int | None = None
        self._capacity: list[int] | None = None
        self._sizes: dict[int, int] = {}
        self._block_tokens: int | None = None
        self._orphans = 0
        self._late_window = False

    def rows(self, record: Record) -> list[_Row]:
        """The rows of one record, which gets its outcome here."""
        tally = self._context.tally
        try:
            event = _DECODER.decode(record.data)
            outcome = self._take(event, record)
        except msgspec.ValidationError as bad:
            tally.reject(record, "invalid_field", str(bad))
            return []
        except (msgspec.DecodeError, RecursionError):
            tally.reject(record, "damaged_line", None)
            return []
        if isinstance(outcome, str):
            tally.ignore(outcome)
            return []
        tally.use()
        return outcome

    def _take(self, event: _Event, record: Record) -> list[_Row] | str:
        """The rows, or why there are none."""
        if not 0 <= event.event_id < 1 << 63:
            raise msgspec.ValidationError("`event_id` is out of range")
        if event.data.type not in _TYPES:
            return "unknown_event"
        if event.data.type == "updated" and event.data.block_hash is None:
            raise msgspec.ValidationError("`block_hash` is missing")
        stream = self._streams.stream("", event.attention_dp_rank)
        arrival = stream.place(event.event_id, None)
        if arrival == "replayed":
            return "replayed_event"
        if self._is_other_window(event.window_size):
            return "other_window"
        writer = _Writer(event, record, stream)
        if arrival == "restart":
            self._book.forget(stream.instance)
            writer.add("cleared")
        return self._changes(event.data, writer)

    def _is_other_window(self, window: int | None) -> bool:
        if window is None or window == self._window:
            return False
        if self._window is not None and window < self._window:
            return True
        self._late_window = self._late_window or bool(self._window and self._sizes)
        self._window = window
        return False

    def _changes(self, data: _Data, writer: _Writer) -> list[_Row] | str:
        if data.type == "created":
            return self._created(data.num_blocks_per_cache_level, writer)
        if data.type == "stored":
            self._stored(data, writer)
        elif data.type == "removed":
            for hashed in map(engine_hash, data.block_hashes):
                writer.add("removed", self._key_of(writer.instance, hashed))
        else:
            moved = data.cache_level
            if moved is None or moved.new_value == moved.old_value:
                return writer.rows or "priority_update"
            key = self._key_of(writer.instance, engine_hash(data.block_hash))
            new, old = _LEVELS.get(moved.new_value), _LEVELS.get(moved.old_value)
            writer.add("moved", key, medium=new, from_medium=old)
        return writer.rows or "empty_event"

    def _created(self, levels: list[int], writer: _Writer) -> list[_Row] | str:
        if not levels or not all(0 <= blocks <= MAX_COUNT for blocks in levels):
            raise msgspec.ValidationError("`num_blocks_per_cache_level` holds no counts")
        self._capacity = levels
        metric = Metric(
            metric="kv_capacity_blocks", value=float(levels[0]), unit="blocks", window="instant"
        )
        sample = SampleRow(
            offset=writer.record.offset,
            line=writer.record.line,
            observed_at_ns=None,
            engine=None if writer.rank is None else f"dp {writer.rank}",
            metrics=[metric],
        )
        return [*writer.rows, sample]

    def _stored(self, data: _Data, writer: _Writer) -> None:
        parent = None if data.parent_hash is None else engine_hash(data.parent_hash)
        parent_key = None if parent is None else self._book.known(writer.instance, parent)
        is_orphan = parent is not None and parent_key is None
        for block in data.blocks:
            hashed = engine_hash(block.block_hash)
            if parent is not None:  # a block with another behind it is full
                self._block_tokens = self._sizes.get(parent, self._block_tokens)
            key = self._book.known(writer.instance, hashed)
            if key is None and (is_orphan or not block.tokens):
                self._orphans += 1
                key = self._book.of_hash(hashed)
            elif key is None:
                key = self._chained(block, parent_key)
            self._book.remember(writer.instance, hashed, key)
            self._note_size(hashed, len(block.tokens))
            size = len(block.tokens) or None
            medium = _LEVELS.get(block.cache_level)
            writer.add("stored", key, parent_key=parent_key, block_tokens=size, medium=medium)
            parent, parent_key, is_orphan = hashed, key, False

    def _chained(self, block: _Block, parent_key: int | None) -> int:
        adapter = None if block.lora_id is None else str(block.lora_id)
        start = self._book.root(adapter, block.cache_salt) if parent_key is None else parent_key
        extras = [token.token_extra_id for token in block.tokens]
        extra = [extras, block.mm_keys] if any(extras) or block.mm_keys else None
        return self._book.chained(start, [token.token_id for token in block.tokens], extra)

    def _note_size(self, hashed: int, tokens: int) -> None:
        """Remember the last few blocks' lengths: a child shows that its parent was full."""
        if self._block_tokens is None and tokens:
            self._sizes[hashed] = tokens
            if len(self._sizes) > 4096:
                del self._sizes[next(iter(self._sizes))]

    def _key_of(self, instance: str, hashed: int) -> int:
        known = self._book.known(instance, hashed)
        return self._book.of_hash(hashed) if known is None else known

    def finish(self) -> None:
        """Fill what the events say of the engine, and leave the notes."""
        context = self._context
        context.clock, context.clock_reason = "order", "events carry a number and no time"
        context.engine = "tensorrt_llm"
        if self._block_tokens is not None:
            context.engine_facts["block_size"] = self._block_tokens
        if self._capacity is not None:
            context.engine_facts["kv_capacity_blocks"] = self._capacity[0]
            if self._block_tokens is not None:
                capacity = self._capacity[0] * self._block_tokens
                context.engine_facts["kv_capacity_tokens"] = capacity
            if len(self._capacity) > 1 and self._capacity[1]:
                context.engine_facts["host_kv_capacity_blocks"] = self._capacity[1]
        self._streams.describe(context, "events")
        if self._orphans:
            context.note(
                "kv_events_parents_unknown",
                f"Stored blocks whose parent was not seen, or without tokens: {self._orphans:,}."
                " They are known by their engine's hash.",
            )
        if self._late_window:
            context.note(
                "kv_events_groups",
                "A larger attention window appeared behind blocks of a smaller one: the first"
                " blocks may be counted once a window.",
            )


class _Writer:
    """Collects the rows of one event."""

    def __init__(self, event: _Event, record: Record, stream: Stream) -> None:
        self.record = record
        self.instance = stream.instance
        self.rank = event.attention_dp_rank
        self.rows: list[_Row] = []
        self._number = event.event_id

    def add(
        self,
        change: Literal["stored", "removed", "moved", "cleared"],
        key: int | None = None,
        *,
        parent_key: int | None = None,
        block_tokens: int | None = None,
        medium: Medium | None = None,
        from_medium: Medium | None = None,
    ) -> None:
        self.rows.append(
            BlockEventRow(
                offset=self.record.offset,
                line=self.record.line,
                observed_at_ns=None,
                instance=self.instance,
                sequence=self._number,
                change=change,
                block_key=key,
                parent_key=parent_key,
                block_tokens=block_tokens,
                medium=medium,
                from_medium=from_medium,
            )
        )


def read_trtllm(records: Iterable[Record], context: ReadContext) -> Iterator[_Row]:
    """The block events and capacities of one file."""
    file = _TrtFile(context)
    for record in records:
        yield from file.rows(record)
    file.finish()


def sniff_trtllm(head: Head) -> Guess | None:
    """A file whose JSON objects are numbered events with typed data."""
    objects = head.json_objects
    ours = sum(_is_event(item) for item in objects)
    if not ours or 2 * ours < len(objects):
        return None
    confidence = 0.6 + 0.38 * ours / len(objects)
    return Guess(confidence, f"{ours} of {len(objects)} records have event_id and typed data")


def _is_event(item: dict[str, object]) -> bool:
    data = item.get("data")
    return "event_id" in item and isinstance(data, dict) and data.get("type") in _TYPES
